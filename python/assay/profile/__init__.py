"""Profilers' results, prepared for reports: by function, by line, by stack."""
