"""How many samples of a prompt are launched?"""
