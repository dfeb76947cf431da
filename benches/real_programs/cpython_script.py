"""Prints the same bytes on every machine, and uses many modules of the standard library."""

import collections
import enum
import functools
import itertools
import json
import math
import random
import re
import string
import textwrap
import zlib


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


@functools.lru_cache(maxsize=None)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def words(count):
    pick = random.Random(19)
    return ["".join(pick.choices(string.ascii_lowercase[:6], k=3)) for _ in range(count)]


def fails(depth):
    if depth == 0:
        raise ValueError("deep enough")
    try:
        fails(depth - 1)
    finally:
        print("unwound", depth)


print(fibonacci(90), math.factorial(40), math.isqrt(10**40), f"{math.erf(0.5):.15f}")
counts = collections.Counter(words(5000))
print(counts.most_common(3), len(counts))
print(json.dumps({"primes": [n for n in range(2, 60) if all(n % d for d in range(2, n))], "é": None}, sort_keys=True))
print(json.loads('[1, 2.5, "three", {"four": [true, null]}]'))
text = " ".join(words(400))
print(re.sub(r"\b(\w)(\w+)\b", lambda match: match[2] + match[1], text)[:60])
print(zlib.crc32(text.encode()), len(zlib.compress(text.encode(), 9)))
print(textwrap.fill(text[:200], 60))
print(list(itertools.islice(itertools.permutations("abcd"), 5)), list(Colour))
print(sorted(sum(group) for group in itertools.combinations(range(12), 5))[::97])
try:
    fails(3)
except ValueError as error:
    print("caught:", error)
