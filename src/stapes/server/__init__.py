"""The local server: HTTP and WebSocket in front of one worker that decodes for all clients."""
