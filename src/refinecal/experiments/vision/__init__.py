"""The paper's experiment on images: which epoch each stopping metric would choose."""
