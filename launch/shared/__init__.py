"""Parts that several commands share: flags, messages, requests, and sending a command to a cluster."""
