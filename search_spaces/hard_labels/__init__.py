"""Search spaces of the image experiment with hard labels, which the paper compares with soft ones."""
