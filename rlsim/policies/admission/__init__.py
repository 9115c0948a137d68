"""May new work enter generation now?"""
