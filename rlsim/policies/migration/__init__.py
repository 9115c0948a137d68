"""May running calls move to another replica?"""
