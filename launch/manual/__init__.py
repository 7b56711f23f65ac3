"""Generated parts of the README and the manual: results, fidelity settings and the command reference."""
