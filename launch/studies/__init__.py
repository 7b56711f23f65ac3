"""Commands that run studies: their flags, requests and bodies."""
