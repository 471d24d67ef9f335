"""scikit-learn estimators that use attention."""
