"""What profilers found, made ready to be looked at: by function, by line, by stack."""
