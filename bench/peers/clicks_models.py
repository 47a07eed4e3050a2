#!/usr/bin/env python3
"""A peer of clicks_quality.py: trains one model on train.csv, stops by valid.csv, and writes probabilities for test.csv.

usage: clicks_models.py --folder DIR --model NAME --seed N --epochs N --out FILE.npy

sklearn_logistic: one-hot words, buckets by quantile and device x hour, tags by their share, scaled numbers; the penalty by
    the validation rows.
sklearn_boosting, xgboost: numbers with their missing values, small categories as categories, user and item as their mean
    click of other folds of the training rows and their frequency, a column for each of the 100 most frequent tags; rounds by
    the validation rows. Logistic regression cannot know these means, trees cannot split 20,000 users.
torch_wide_deep: the columns and layers of Braid's job, dense Adagrad of the same rate; the epoch by the validation rows.

Prints a JSON line with the number of rounds.
"""
import argparse
import copy
import csv
import datetime
import json

import numpy as np

WORDS = ("user", "item", "city", "device")


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = {name: [row[name] for row in rows] for name in WORDS}
    for name in ("age", "price"):
        columns[name] = np.array([float(row[name]) if row[name] else np.nan for row in rows], np.float32)
    times = [datetime.datetime.fromisoformat(row["time"]) for row in rows]
    columns["hour"] = np.array([t.hour for t in times])
    columns["weekday"] = np.array([t.weekday() for t in times])
    columns["tags"] = [row["tags"].split("|") if row["tags"] else [] for row in rows]
    columns["click"] = np.array([int(row["click"]) for row in rows])
    return columns


def vocabulary(words, least=3):
    """Words of `least` rows and more, the most frequent first; others share the number behind them."""
    names, counts = np.unique(words, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {names[i]: n for n, i in enumerate(order) if counts[i] >= least}


class Columns:
    """Numbers of the fields, as the training rows say."""

    def __init__(self, train):
        self.words = {name: vocabulary(train[name]) for name in WORDS}
        self.tags = vocabulary([tag for tags in train["tags"] for tag in tags])
        self.borders = {name: np.unique(np.nanquantile(train[name], np.arange(1, 20) / 20)) for name in ("age", "price")}
        self.mean, self.deviation = {}, {}
        for name in ("age", "price"):
            x = self.filled(train, name)
            self.mean[name], self.deviation[name] = x.mean(), x.std()

    @staticmethod
    def filled(rows, name):
        return np.log1p(np.nan_to_num(rows[name], nan=20)) if name == "price" else np.nan_to_num(rows[name], nan=38)

    def ids(self, rows):
        """name -> (ids of the rows, how many there are)."""
        found = {name: (np.array([words.get(w, len(words)) for w in rows[name]]), len(words) + 1)
                 for name, words in self.words.items()}
        for name, borders in self.borders.items():
            places = np.searchsorted(borders, rows[name], side="right")
            found[name + "_bucket"] = (np.where(np.isnan(rows[name]), len(borders) + 1, places), len(borders) + 2)
        found["hour"], found["weekday"] = (rows["hour"], 24), (rows["weekday"], 7)
        device, devices = found["device"]
        found["device_hour"] = (device * 24 + rows["hour"], devices * 24)
        return found

    def numbers(self, rows):
        """[rows, 2], scaled."""
        return np.stack([(self.filled(rows, n) - self.mean[n]) / self.deviation[n] for n in ("age", "price")], 1)

    def tag_lists(self, rows):
        """All rows' tags side by side, and where each row's begin."""
        lists = [[self.tags.get(tag, len(self.tags)) for tag in tags] for tags in rows["tags"]]
        return (np.array([tag for tags in lists for tag in tags], np.int64),
                np.concatenate([[0], np.cumsum([len(tags) for tags in lists])]))


def log_loss(labels, p):
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return float(-np.where(labels == 1, np.log(p), np.log(1 - p)).mean())


def logistic(parts, columns, _):
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression

    def matrix(rows):
        count = len(rows["click"])
        blocks = [sparse.csr_matrix(columns.numbers(rows))]
        for ids, size in columns.ids(rows).values():
            blocks.append(sparse.csr_matrix((np.ones(count), (np.arange(count), ids)), (count, size)))
        tags, offsets = columns.tag_lists(rows)
        lengths = np.diff(offsets)
        shares = np.repeat(1 / np.maximum(lengths, 1), lengths)
        blocks.append(sparse.csr_matrix((shares, tags, offsets), (count, len(columns.tags) + 1)))
        return sparse.hstack(blocks, format="csr")

    train, valid, test = map(matrix, parts)
    best = None
    for c in (0.03, 0.1, 0.3, 1.0):
        model = LogisticRegression(C=c, max_iter=300).fit(train, parts[0]["click"])
        loss = log_loss(parts[1]["click"], model.predict_proba(valid)[:, 1])
        if best is None or loss < best[0]:
            best = loss, model, c
    return best[1].predict_proba(test)[:, 1], best[2]


def tree_columns(parts, columns, seed, unknown):
    """Three matrices, and which of their columns are categories; a missing category is `unknown`."""
    from sklearn.preprocessing import TargetEncoder
    encoder = TargetEncoder(target_type="binary", random_state=seed)
    names = ("user", "item")
    words = [np.stack([rows[name] for name in names], 1) for rows in parts]
    means = [encoder.fit_transform(words[0], parts[0]["click"]), encoder.transform(words[1]), encoder.transform(words[2])]
    counts = {name: dict(zip(*np.unique(parts[0][name], return_counts=True))) for name in names}
    matrices = []
    for rows, mean in zip(parts, means):
        ids = columns.ids(rows)
        city = np.array([np.nan if unknown and word == "" else columns.words["city"].get(word, len(columns.words["city"]))
                         for word in rows["city"]])
        frequencies = [[counts[name].get(word, 0) for word in rows[name]] for name in names]
        tags, offsets = columns.tag_lists(rows)
        lengths = np.diff(offsets)
        shares = np.zeros((len(lengths), 100))
        row = np.repeat(np.arange(len(lengths)), lengths)
        frequent = tags < 100
        np.add.at(shares, (row[frequent], tags[frequent]), 1)
        matrices.append(np.column_stack([city, ids["device"][0], rows["hour"], rows["weekday"], rows["age"], rows["price"],
                                         mean, np.transpose(frequencies), lengths, shares]).astype(np.float32))
    return matrices, [True, True] + [False] * (matrices[0].shape[1] - 2)


def boosting(parts, columns, seed):
    from sklearn.ensemble import HistGradientBoostingClassifier
    (train, valid, test), categories = tree_columns(parts, columns, seed, True)
    model = HistGradientBoostingClassifier(learning_rate=0.05, max_iter=1000, categorical_features=categories,
                                           early_stopping=True, n_iter_no_change=20, random_state=seed)
    model.fit(train, parts[0]["click"], X_val=valid, y_val=parts[1]["click"])
    return model.predict_proba(test)[:, 1], int(model.n_iter_)


def xgboost(parts, columns, seed):
    import xgboost as xgb
    (train, valid, test), categories = tree_columns(parts, columns, seed, True)
    types = ["c" if category else "q" for category in categories]
    train, valid, test = (xgb.DMatrix(x, label=rows["click"], feature_types=types, enable_categorical=True)
                          for x, rows in zip((train, valid, test), parts))
    model = xgb.train({"objective": "binary:logistic", "eta": 0.05, "max_depth": 6, "tree_method": "hist", "seed": seed,
                       "eval_metric": "logloss", "min_child_weight": 10}, train, 1000, [(valid, "valid")],
                      early_stopping_rounds=20, verbose_eval=False)
    return model.predict(test, iteration_range=(0, model.best_iteration + 1)), model.best_iteration + 1


def torch_wide_deep(parts, columns, seed, epochs):
    import torch
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    dim, names = 8, sorted(columns.ids(parts[1]))

    def tensors(rows):
        ids = columns.ids(rows)
        tags, offsets = columns.tag_lists(rows)
        return (torch.from_numpy(columns.numbers(rows)).float(),
                torch.from_numpy(np.stack([ids[name][0] for name in names], 1)).long(), tags, offsets,
                torch.from_numpy(rows["click"]).float())

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            sizes = [columns.ids(parts[1])[name][1] for name in names]
            tags = len(columns.tags) + 1
            self.wide = torch.nn.ModuleList([torch.nn.Embedding(size, 1) for size in sizes])
            self.deep = torch.nn.ModuleList([torch.nn.Embedding(size, dim) for size in sizes])
            self.wide_tags = torch.nn.EmbeddingBag(tags, 1, mode="sum", include_last_offset=True)
            self.deep_tags = torch.nn.EmbeddingBag(tags, dim, mode="mean", include_last_offset=True)
            for table in [*self.wide, self.wide_tags]:
                torch.nn.init.zeros_(table.weight)
            for table in [*self.deep, self.deep_tags]:
                torch.nn.init.uniform_(table.weight, -0.01, 0.01)
            widths = [2 + dim * (len(sizes) + 1), 64, 32]
            layers = []
            for i, o in zip(widths, widths[1:]):
                layers += [torch.nn.Linear(i, o), torch.nn.ReLU()]
            self.mlp = torch.nn.Sequential(*layers, torch.nn.Linear(32, 1))
            self.linear = torch.nn.Linear(2, 1)
            for layer in self.mlp:
                if isinstance(layer, torch.nn.Linear):
                    torch.nn.init.xavier_uniform_(layer.weight)
                    torch.nn.init.zeros_(layer.bias)

        def forward(self, dense, ids, tags, offsets):
            wide = self.linear(dense) + sum(t(ids[:, i]) for i, t in enumerate(self.wide)) + self.wide_tags(tags, offsets)
            deep = [dense, *(t(ids[:, i]) for i, t in enumerate(self.deep)), self.deep_tags(tags, offsets)]
            return (wide + self.mlp(torch.cat(deep, 1))).squeeze(1)

    def batch(rows, chosen):
        dense, ids, tags, offsets, _ = rows
        lists = [tags[offsets[r]:offsets[r + 1]] for r in chosen]
        ends = np.cumsum([0] + [len(x) for x in lists])
        return (dense[chosen], ids[chosen], torch.from_numpy(np.concatenate([*lists, np.empty(0, np.int64)])),
                torch.from_numpy(ends))

    def predict(rows):
        with torch.no_grad():
            every = np.arange(len(rows[4]))
            return np.concatenate([torch.sigmoid(model(*batch(rows, every[i:i + 4096]))).numpy()
                                   for i in range(0, len(every), 4096)])

    train, valid, test = map(tensors, parts)
    model = Model()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01, initial_accumulator_value=1e-5)
    random, best, worse = np.random.default_rng(seed), None, 0
    count, steps = len(train[4]), 0
    every = max(1, count // 256 // 4)
    for _ in range(epochs):
        order = random.permutation(count)
        for at in range(0, count - 255, 256):
            chosen = order[at:at + 256]
            optimizer.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(model(*batch(train, chosen)), train[4][chosen]).backward()
            optimizer.step()
            steps += 1
            if steps % every:
                continue
            loss = log_loss(parts[1]["click"], predict(valid).astype(np.float64))
            if best is None or loss < best[0]:
                best, worse = (loss, copy.deepcopy(model.state_dict()), steps), 0
            else:
                worse += 1
            if worse == 3:
                break
        if worse == 3:
            break
    model.load_state_dict(best[1])
    return predict(test), best[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    parts = [read(f"{args.folder}/{name}.csv") for name in ("train", "valid", "test")]
    columns = Columns(parts[0])
    if args.model == "torch_wide_deep":
        predicted, rounds = torch_wide_deep(parts, columns, args.seed, args.epochs)
    else:
        train = {"sklearn_logistic": logistic, "sklearn_boosting": boosting, "xgboost": xgboost}[args.model]
        predicted, rounds = train(parts, columns, args.seed)
    np.save(args.out, predicted.astype(np.float32))
    print(json.dumps({"rounds": rounds}))


if __name__ == "__main__":
    main()
