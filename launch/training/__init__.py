"""Commands that train without Ray, or get what training needs: one run, a backbone, the real images."""
