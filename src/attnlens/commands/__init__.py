"""The practitioner's commands: a user's own data and models under the calibrated instruments."""
