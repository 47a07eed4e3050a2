#!/usr/bin/env python3
"""Writes metric_cases.json: predictions, truths and what scikit-learn and NumPy say of them.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install numpy scikit-learn
    /tmp/venv/bin/python tests/worker/metrics/make_metric_cases.py tests/worker/metrics/metric_cases.json

Scores are float32 logits, as a model gives them. What scikit-learn has no function for (calibration, group AUC,
precision and recall at k) is put together here from its AUC per group, or counted without any tie broken."""
import json
import sys

import numpy as np
import sklearn
from sklearn.metrics import (accuracy_score, average_precision_score, log_loss, mean_absolute_error,
                             mean_squared_error, ndcg_score, roc_auc_score)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def floats(array):
    return [float(x) for x in np.asarray(array).ravel()]


def expected_hits(scores, labels, k):
    """Positives among the k best, of the tie at the border its share, by counting."""
    order = np.sort(scores)[::-1]
    border = order[min(k, len(order)) - 1]
    above, tie = scores > border, scores == border
    left = min(k, len(order)) - above.sum()
    return labels[above].sum() + left * labels[tie].mean()


def at_k(scores, labels, groups, k):
    precision, recall, ndcg = [], [], []
    for group in np.unique(groups):
        s, y = scores[groups == group], labels[groups == group]
        hits = expected_hits(s, y, k)
        precision.append(hits / k)
        if y.sum() == 0:
            continue
        recall.append(hits / y.sum())
        ndcg.append(ndcg_score([y], [s], k=k) if len(y) > 1 else 1.0)
    return {f"precision_at_{k}": np.mean(precision), f"recall_at_{k}": np.mean(recall), f"ndcg_at_{k}": np.mean(ndcg)}


def probability(name, scores, labels, weights=None, groups=None, ks=(1, 5, 10)):
    scores = np.asarray(scores, np.float32).astype(np.float64)
    labels = np.asarray(labels, np.int64)
    p = sigmoid(scores)
    w = None if weights is None else np.asarray(weights, np.float32).astype(np.float64)
    ones = np.ones_like(scores) if w is None else w
    both = 0 < labels.sum() < len(labels)
    expected = {
        "log_loss": log_loss(labels, p, sample_weight=w, labels=[0, 1]),
        "accuracy": accuracy_score(labels, p > 0.5, sample_weight=w),
        "auc": roc_auc_score(labels, scores, sample_weight=w) if both else None,
        "pr_auc": average_precision_score(labels, scores, sample_weight=w) if labels.any() else None,
        "calibration": (ones * p).sum() / (ones * labels).sum() if labels.any() else None,
    }
    if groups is not None:
        groups = np.asarray(groups)
        aucs, impressions = [], []
        for group in np.unique(groups):
            its = groups == group
            if 0 < labels[its].sum() < its.sum():
                aucs.append(roc_auc_score(labels[its], scores[its], sample_weight=None if w is None else w[its]))
                impressions.append(ones[its].sum())
        expected["group_auc"] = np.average(aucs, weights=impressions) if aucs else None
    if labels.any():
        for k in ks:
            expected.update(at_k(scores, labels, np.zeros(len(labels)) if groups is None else groups, k))
    case = {"name": name, "scores": floats(scores), "labels": floats(labels), "expected": expected}
    if w is not None:
        case["weights"] = floats(w)
    if groups is not None:
        case["groups"] = [int(g) for g in groups]
    return case


def classes(name, logits, labels, weights=None):
    logits = np.asarray(logits, np.float32).astype(np.float64)
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    w = None if weights is None else np.asarray(weights, np.float32).astype(np.float64)
    case = {"name": name, "scores": floats(logits), "classes": [int(y) for y in labels], "expected": {
        "log_loss": log_loss(labels, p, sample_weight=w, labels=range(logits.shape[1])),
        "accuracy": accuracy_score(labels, logits.argmax(1), sample_weight=w)}}
    if w is not None:
        case["weights"] = floats(w)
    return case


def value(name, predicted, truth, weights=None):
    predicted, truth = (np.asarray(x, np.float32).astype(np.float64) for x in (predicted, truth))
    w = None if weights is None else np.asarray(weights, np.float32).astype(np.float64)
    case = {"name": name, "values": floats(predicted), "labels": floats(truth), "expected": {
        "rmse": np.sqrt(mean_squared_error(truth, predicted, sample_weight=w)),
        "mae": mean_absolute_error(truth, predicted, sample_weight=w)}}
    if w is not None:
        case["weights"] = floats(w)
    return case


def main():
    rng = np.random.default_rng(7)
    n = 60
    labels = (rng.random(n) < 0.3).astype(int)
    smooth = rng.normal(size=n) + labels
    coarse = np.round(smooth * 2) / 2  # many ties
    weights = rng.random(n) * 3
    weights[5] = 0
    groups = rng.integers(0, 9, n)
    labels_of_groups = labels.copy()
    labels_of_groups[groups == 3] = 0  # groups of one class
    labels_of_groups[groups == 4] = 1
    logits = rng.normal(size=(40, 5)) * 3
    classes_of = rng.integers(0, 5, 40)
    truth = rng.normal(size=30) * 10
    guess = truth + rng.normal(size=30)
    cases = [
        probability("no ties", smooth, labels),
        probability("ties", coarse, labels),
        probability("all scores equal", np.full(n, 0.25), labels),
        probability("ties and weights", coarse, labels, weights),
        probability("groups, some of one class", smooth, labels_of_groups, None, groups, (1, 3, 20)),
        probability("groups, ties and weights", coarse, labels_of_groups, weights, groups, (2, 4)),
        probability("large logits", smooth * 9, labels),
        probability("positives alone", smooth[:9], np.ones(9)),
        probability("negatives alone", smooth[:9], np.zeros(9)),
        probability("two rows", [0.5, -0.5], [1, 0], ks=(1, 2, 10)),
        classes("classes", logits, classes_of),
        classes("classes with weights", logits, classes_of, rng.random(40)),
        value("values", guess, truth),
        value("values with weights", guess, truth, rng.random(30)),
    ]
    text = json.dumps({"made_by": f"make_metric_cases.py, scikit-learn {sklearn.__version__}, "
                                  f"NumPy {np.__version__}", "cases": cases})
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write(text.replace('{"name"', '\n{"name"') + "\n")


if __name__ == "__main__":
    main()
