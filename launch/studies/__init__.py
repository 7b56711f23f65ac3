"""Commands that run studies: their flags, what they are asked for, and their bodies."""
