"""Rows of clicks from a hidden model: numbers, categories, a list of any length, missing values, a time stamp.

The logit of a click adds up what user, item, city and device are worth, a device in an hour of the day (which no single
column says), a hump over the age, a fall over the logarithm of the price, the mean worth of the tags, and how near the
user's and the item's two hidden numbers are. Ages are missing more often where clicks are rarer, so that a missing value
says something. Half of what users and items are worth is noise to whoever has not seen them often: they follow a power law.
"""
import datetime

import numpy as np

USERS, ITEMS, CITIES, DEVICES, TAGS = 5000, 1000, 200, ("phone", "tablet", "desktop", "tv"), 300
FIELDS = ("time", "user", "item", "device", "city", "age", "price", "tags", "click")
BEGIN = datetime.datetime(2026, 3, 1)
DAYS = 28


def zipf(random, count, rows, exponent):
    """`rows` numbers below `count`, the first ones often."""
    weights = 1 / np.arange(1, count + 1) ** exponent
    return np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(rows)).clip(0, count - 1)


def make(rows, seed):
    """The fields of so many rows, and each row's probability of a click. Missing numbers are NaN, a missing city is -1."""
    random = np.random.default_rng(seed)
    user, item = zipf(random, USERS, rows, 0.8), zipf(random, ITEMS, rows, 0.9)
    city, device = zipf(random, CITIES, rows, 0.7), random.choice(len(DEVICES), rows, p=[0.55, 0.1, 0.3, 0.05])
    hour_of_day = random.choice(24, rows, p=(hours := 1.2 + np.sin((np.arange(24) - 8) / 24 * 2 * np.pi)) / hours.sum())
    seconds = random.integers(0, DAYS, rows) * 86400 + hour_of_day * 3600 + random.integers(0, 3600, rows)
    weekday = (seconds // 86400 + BEGIN.weekday()) % 7
    age = np.clip(random.gamma(9, 4.3, rows), 13, 95).round()
    price = np.exp(random.normal(3, 0.9, rows)).round(2)
    lengths = np.minimum(random.geometric(0.28, rows) - 1, 30)
    tags = zipf(random, TAGS, int(lengths.sum()), 0.8)

    worth = random.normal(0, 0.6, TAGS)
    sums = np.bincount(np.repeat(np.arange(rows), lengths), worth[tags], rows)
    near = (random.normal(0, 0.5, (USERS, 2))[user] * random.normal(0, 0.5, (ITEMS, 2))[item]).sum(1)
    logit = (random.normal(0, 0.5, USERS)[user] + random.normal(0, 0.6, ITEMS)[item] + random.normal(0, 0.2, CITIES)[city]
             + random.normal(0, 0.35, (len(DEVICES), 24))[device, hour_of_day] + random.normal(0, 0.15, 7)[weekday]
             + 0.5 * np.exp(-(((age - 32) / 12) ** 2)) - 0.35 * (np.log(price) - 3) + sums / np.maximum(lengths, 1) + near
             - 1.9)
    probability = 1 / (1 + np.exp(-logit))
    click = (random.random(rows) < probability).astype(np.int64)
    age = np.where(random.random(rows) < 0.08 + 0.14 * (1 - probability), np.nan, age)
    price = np.where(random.random(rows) < 0.05, np.nan, price)
    city = np.where(random.random(rows) < 0.04, -1, city)
    columns = {"seconds": seconds, "user": user, "item": item, "device": device, "city": city, "age": age, "price": price,
               "lengths": lengths, "tags": tags, "ends": np.cumsum(lengths), "click": click}
    return columns, probability


def write(path, columns, begin, end):
    """Rows [begin, end) as CSV with a header; what is missing is empty, a list stands between bars."""
    def number(x, digits):
        return "" if np.isnan(x) else f"{x:.{digits}f}"

    with open(path, "w", encoding="utf-8") as file:
        file.write(",".join(FIELDS) + "\n")
        for r in range(begin, end):
            time = (BEGIN + datetime.timedelta(seconds=int(columns["seconds"][r]))).strftime("%Y-%m-%d %H:%M:%S")
            city = columns["city"][r]
            last = columns["ends"][r]
            tags = "|".join(f"t{t}" for t in columns["tags"][last - columns["lengths"][r]:last])
            file.write(f"{time},u{columns['user'][r]},i{columns['item'][r]},{DEVICES[columns['device'][r]]},"
                       f"{'' if city < 0 else f'c{city}'},{number(columns['age'][r], 0)},{number(columns['price'][r], 2)},"
                       f"{tags},{columns['click'][r]}\n")
