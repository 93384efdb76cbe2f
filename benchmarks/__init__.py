"""Temperature scaling, ours and others': time and accuracy on the same arrays."""
