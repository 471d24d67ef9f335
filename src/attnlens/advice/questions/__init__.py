"""One module per subject, one function per question.

Each function takes measurements and returns the `Answer`; `advise` and the command that asks the
same single question call the same function, so a question has one rule and one wording.

    decision     what should be used? what does attention itself add? what would more labels buy?
    order        does the order of tokens matter? how do tokens depend on their place?
    labels       which model needs the fewest labels? how many, and what would more of them buy?
    tokens       how many tokens, or columns, are enough?
    guidelines   do sparsity or a lower rank help?
    landscape    is the loss surface healthy: a minimum, flat, in how many directions curved?
    transfer     will a pretrained representation transfer?

A new question is also a member of `attnlens.core.sheets.Question`, and asked in
`attnlens.advice.rounds`.
"""
