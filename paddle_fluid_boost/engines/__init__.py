"""From a program to something that runs."""
