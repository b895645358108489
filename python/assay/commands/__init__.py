"""The verbs of the command line, one file each; ``assay.cli`` lists them."""
