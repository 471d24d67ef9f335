"""The user's own files: CSV, Parquet, NPY, NPZ, IDX and data frames."""
