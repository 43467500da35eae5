# A picture as the detection wants it: sides that are multiples of 32, normal colours.
from lumen_engine.demo import receipt
from lumen_engine.step import BadInput
from PIL import Image

LONGEST = 1600


def run(inputs):
    picture = inputs["picture"]
    height, width = picture.shape[:2]
    if not 32 <= min(height, width) <= max(height, width) <= LONGEST:
        raise BadInput(f"picture: got {width} x {height} pixels, wanted sides of 32 to {LONGEST}")
    photo = Image.fromarray(picture).resize((width // 32 * 32, height // 32 * 32))
    return {"pixels": receipt.detection_input(photo)}
