"""One batch of training, in its plain and its fast forms, and its repetition."""
