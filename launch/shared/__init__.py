"""Parts shared by several commands: flags, messages, requests, and sending a command to a cluster."""
