"""The published numbers: Xue et al., LazyGNN, ICML 2023. Keys are the rows and columns of its tables.

Figures are not given as numbers.
"""

# the paper's name of a data set, for the graphs that are the same; features of `arxiv` and `flickr_graph` differ
COLUMNS = {
    "arxiv": "ogbn-arxiv",
    "ogbn-arxiv": "ogbn-arxiv",
    "ogbn-products": "ogbn-products",
    "flickr_graph": "Flickr",
    "flickr": "Flickr",
    "reddit": "Reddit",
    "yelp": "Yelp",
    "cora": "Cora",
}

# Table 1: accuracy in percent; an entry that is missing here is missing there
TABLE1: dict[str, dict[str, float | str]] = {
    "GraphSAGE": {"Reddit": 95.4, "Flickr": 50.1, "Yelp": 63.4, "ogbn-arxiv": 71.5, "ogbn-products": 78.7},
    "FastGCN": {"Reddit": 93.7, "Flickr": 50.4},
    "LADIES": {"Reddit": 92.8},
    "VR-GCN": {"Reddit": 94.5, "Yelp": 61.5},
    "MVS-GNN": {"Reddit": 94.9, "Yelp": 62.0},
    "Cluster-GCN": {"Reddit": 96.6, "Flickr": 48.1, "Yelp": 60.9, "ogbn-products": 79.0},
    "GraphSAINT": {"Reddit": 97.0, "Flickr": 51.1, "Yelp": 65.3, "ogbn-products": 79.1},
    "SGC": {"Reddit": 96.4, "Flickr": 48.2, "Yelp": 64.0},
    "SIGN": {"Reddit": 96.8, "Flickr": 51.4, "Yelp": 63.1, "ogbn-products": 77.6},
    "VQ-GNN": {"Reddit": 94.5, "ogbn-arxiv": 70.6},
    "GCN (full)": {"Reddit": 95.4, "Flickr": 53.7, "Yelp": "OOM", "ogbn-arxiv": 71.6, "ogbn-products": "OOM"},
    "APPNP (full)": {"Reddit": 96.1, "Flickr": 53.4, "Yelp": "OOM", "ogbn-arxiv": 71.8, "ogbn-products": "OOM"},
    "GCNII (full)": {"Reddit": 96.1, "Flickr": 55.3, "Yelp": "OOM", "ogbn-arxiv": 72.8, "ogbn-products": "OOM"},
    "GCN (GAS)": {"Reddit": 95.4, "Flickr": 54.0, "ogbn-arxiv": 71.7, "ogbn-products": 76.7},
    "APPNP (GAS)": {"Reddit": 96.0, "Flickr": 52.4, "Yelp": 63.8, "ogbn-arxiv": 71.9, "ogbn-products": 76.2},
    "GCNII (GAS)": {"Reddit": 96.7, "Flickr": 55.3, "Yelp": 65.1, "ogbn-arxiv": 72.5, "ogbn-products": 77.2},
    "LazyGNN (full)": {"Reddit": 96.2, "Flickr": 54.2, "Yelp": "OOM", "ogbn-arxiv": 73.2, "ogbn-products": "OOM"},
    "LazyGNN (mini)": {"Reddit": 96.8, "Flickr": 54.0, "Yelp": 65.4, "ogbn-arxiv": 73.0, "ogbn-products": 82.3},
}

# Table 2: ogbn-products, MB on the GPU, MB in host memory, seconds of an epoch
TABLE2: dict[str, dict[str, float]] = {
    "GCN (GAS), host": {"GPU memory": 2512, "host memory": 4783, "s/epoch": 28.8},
    "GCNII (GAS), host": {"GPU memory": 3035, "host memory": 4783, "s/epoch": 44.3},
    "APPNP (GAS), host": {"GPU memory": 2142, "host memory": 3952, "s/epoch": 84.5},
    "LazyGNN, host": {"GPU memory": 2101, "host memory": 878, "s/epoch": 44.5},
    "GraphSAGE": {"GPU memory": 4781, "s/epoch": 33.7},
    "GCN (GAS)": {"GPU memory": 7296, "s/epoch": 11.7},
    "GCNII (GAS)": {"GPU memory": 7820, "s/epoch": 18.2},
    "APPNP (GAS)": {"GPU memory": 6097, "s/epoch": 10.5},
    "LazyGNN": {"GPU memory": 2981, "s/epoch": 7.7},
}

# Table 3: Cora, distance between connected nodes, by system and number of layers
TABLE3: dict[str, dict[int, float]] = {
    "GCN": {1: 336, 5: 315, 10: 297, 15: 263, 20: 225},
    "APPNP": {1: 353, 5: 305, 10: 296, 15: 304, 20: 302},
    "LazyGNN": {1: 302, 5: 285, 10: 290, 15: 291, 20: 292},
}

# Table 4: accuracy in percent, by system and number of propagation layers
TABLE4: dict[str, dict[str, float | str]] = {
    "APPNP (GAS), L=1": {"ogbn-arxiv": 70.6, "ogbn-products": 75.2},
    "APPNP (GAS), L=2": {"ogbn-arxiv": 71.4, "ogbn-products": 75.5},
    "APPNP (GAS), L=3": {"ogbn-arxiv": 71.5, "ogbn-products": 75.7},
    "APPNP (GAS), L=4": {"ogbn-arxiv": 71.8, "ogbn-products": 75.8},
    "APPNP (GAS), L=5": {"ogbn-arxiv": 72.2, "ogbn-products": 76.0},
    "APPNP (GAS), L=8": {"ogbn-arxiv": 72.5, "ogbn-products": 76.1},
    "APPNP (GAS), L=10": {"ogbn-arxiv": 72.7, "ogbn-products": 76.2},
    "LazyGNN, L=1": {"ogbn-arxiv": 72.5, "ogbn-products": 79.8},
    "LazyGNN, L=2": {"ogbn-arxiv": 73.0, "ogbn-products": 82.3},
    "LazyGNN, L=3": {"ogbn-arxiv": 73.0, "ogbn-products": "OOM"},
}

# Table 5: accuracy of mini-batch LazyGNN in percent, by number of clusters
TABLE5: dict[str, dict[str, float | str]] = {
    "LazyGNN, 50 clusters": {"ogbn-products": 82.3},
    "LazyGNN, 100 clusters": {"ogbn-products": 81.8},
    "LazyGNN, 150 clusters": {"ogbn-products": 81.5},
    "LazyGNN, 200 clusters": {"ogbn-products": 80.6},
}

# Table 6: accuracy of mini-batch LazyGNN in percent, by beta and gamma
TABLE6: dict[str, dict[str, float | str]] = {
    "beta 0.0, gamma 0.0": {"ogbn-arxiv": 71.0},
    "beta 1.0, gamma 1.0": {"ogbn-arxiv": 71.7},
    "beta 0.5, gamma 0.1": {"ogbn-arxiv": 72.5},
    "beta 0.5, gamma 0.5": {"ogbn-arxiv": 73.0},
    "beta 0.5, gamma 0.9": {"ogbn-arxiv": 72.8},
    "beta 0.1, gamma 0.5": {"ogbn-arxiv": 72.4},
    "beta 0.9, gamma 0.5": {"ogbn-arxiv": 72.7},
}
