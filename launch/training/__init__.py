"""Commands that train without Ray, or prepare training: one run, a backbone, the real images."""
