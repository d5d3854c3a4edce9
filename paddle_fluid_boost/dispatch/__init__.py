"""What a call meets - the key of the call, guards, and the bounded cache of compiled versions."""
