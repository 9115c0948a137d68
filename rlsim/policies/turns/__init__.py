"""When does a trajectory take its next turn?"""
