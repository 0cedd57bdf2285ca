"""The estimators: thin scikit-learn faces on a source, a learner and the training loop."""
