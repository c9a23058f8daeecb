"""Every mechanism in the same small decoder on the same text: which loses what?"""
