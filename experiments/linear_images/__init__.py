"""Images pixel by pixel, with softmax and with linear attention: how good, how fast?"""
