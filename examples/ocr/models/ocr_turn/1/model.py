# Lines that stand on their head are turned.
SURE = 0.9


def run(inputs):
    lines = inputs["lines"].copy()
    for line, width, (_, is_turned) in zip(lines, inputs["widths"], inputs["direction"]):
        if is_turned > SURE:
            line[:, :, :width] = line[:, ::-1, :width][:, :, ::-1].copy()
    return {"upright": lines}
