"""What the plugin did, as records, text and HTML."""
