"""Looking at images with a trained encoder: findings, figures and a page of them."""
