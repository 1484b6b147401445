"""Gateway of services: takes requests of OpenAI clients to replicas and back."""
