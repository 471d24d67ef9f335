"""Answers to a practitioner's questions about their own data and models.

Each function takes data or a model and returns a `Sheet`: answers in plain words with their
evidence, and "not enough data to say" where the data do not decide. The rule and the wording of
each question are in `questions/`, one function per question.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
