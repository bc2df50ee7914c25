"""Admission: stamps LLM-serving pods and refuses writes that clash with a stored stamp."""
