"""What knows nothing of calibration: arrays, checks, errors, files, numbers for people, threads."""
