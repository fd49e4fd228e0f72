"""The public data sets: where their files come from, and in which format they are."""

from dataclasses import dataclass
from typing import Literal

# the object ids of the files in the repository of their publisher, in the order of `_planetoid`
_GIT = {
    "cora": (
        "c4a91d008245403e7f26aa616b437191509793c0",
        "6e856d777401ee15dc8619db76c97d0a40ba2d60",
        "44d53b1fece343538e45592caac521d73c6f98d6",
        "58e30ef120d3553cfaac33ff28c6b5436dbef661",
        "da1734ab670b5c8ecee78a9c30b35566df916f4b",
        "04fbd0b083d09341fcf16b395c642329637f0542",
        "4d3bf85dfc8b1c105a2c995597a1b3eed6947925",
        "ded8092db4cd767a367eebe09003b954a5316f24",
    ),
    "citeseer": (
        "f094104a66f2689ffbd01085fe6a856689e9db9e",
        "b2aff18aa1fc6f4f5e8c64db7643b59b24e42584",
        "592091071ac35b78599c722d0e60b1c655711728",
        "e857ac49b611da98e101a068cf4855350274f68a",
        "3795f79df0cd1123f4478b77c148a5fbacc4cefb",
        "7503f81a0b6ac1cc21cb5a97073542a6b1dfe99c",
        "a01dca663d0103c130f525017a4a9c313037e286",
        "62d9e3d5ed53c66b069125af98529d76c70d9b3e",
    ),
    "pubmed": (
        "16c0eca8d2b3297014ff80327416f9332eda10d7",
        "eee4f3c988fde0da87a9ec7b01ca5e7863c1b1f1",
        "3b86bccf08111c37c632a9dd8ab63db25ea76361",
        "e86670576c85340eeb2271b3c918bfa89322b2cf",
        "225a0bb9bb6430e3925d04688daf6a0da964c07a",
        "4c8bcdc80882dd225fe4dd4fafd723baa616ac97",
        "76eb87e628a6b9d43fc31ea42c8c6c8f3e52b404",
        "41f6befcb7750cc4858cb852f2b349a9598cb2f4",
    ),
}


@dataclass(frozen=True)
class Source:
    """The addresses and the format of the files of one data set.

    Args:
        name: Name of the data set.
        reader: Format of the files: `planetoid`, `saint` or `ogb`.
        files: Pairs of an address and a path in the folder of the data set.
        members: For a zip archive, the paths to unpack; they keep their names in the folder.
        top: Folder of the members inside the archive.
        git: For a publisher that uses git, its object id of every file, which is a checksum.
    """

    name: str
    reader: Literal["planetoid", "saint", "ogb"]
    files: tuple[tuple[str, str], ...]
    members: tuple[str, ...] = ()
    top: str = ""
    git: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Returns the files of a complete data set."""
        return self.members or tuple(path for _, path in self.files)


def _planetoid(name: str) -> Source:
    suffixes = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = tuple(f"ind.{name}.{suffix}" for suffix in suffixes)
    base = "https://github.com/kimiyoung/planetoid/raw/master/data"
    return Source(name, "planetoid", tuple((f"{base}/{file}", f"raw/{file}") for file in files), git=_GIT[name])


def _saint(name: str, adj: str, feats: str, class_map: str, role: str) -> Source:
    ids = {"adj_full.npz": adj, "feats.npy": feats, "class_map.json": class_map, "role.json": role}
    # `confirm` skips the warning that the file is too large for a virus scan
    base = "https://drive.usercontent.google.com/download?confirm=t&id="
    return Source(name, "saint", tuple((f"{base}{key}", f"raw/{file}") for file, key in ids.items()))


def _ogb(name: str, split: str) -> Source:
    top = name.removeprefix("ogbn-")
    raw = ("edge", "node-feat", "node-label", "num-node-list")
    stems = (*(f"raw/{stem}" for stem in raw), *(f"split/{split}/{stem}" for stem in ("train", "valid", "test")))
    members = tuple(f"{stem}.csv.gz" for stem in stems)
    url = f"https://snap.stanford.edu/ogb/data/nodeproppred/{top}.zip"
    return Source(name, "ogb", ((url, f"{top}.zip"),), members, top)


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        _planetoid("cora"),
        _planetoid("citeseer"),
        _planetoid("pubmed"),
        _saint(
            "flickr",
            adj="1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy",
            feats="1join-XdvX3anJU_MLVtick7MgeAQiWIZ",
            class_map="1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9",
            role="1htXCtuktuCW8TR8KiKfrFDAxUgekQoV7",
        ),
        # the sparser graph of GraphSAINT with 23 million stored edges, `Reddit2` in PyG
        _saint(
            "reddit",
            adj="1sncK996BM5lpuDf75lDFqCiDZyErc1c2",
            feats="1ZsHaJ0ussP1W722krmEIp_8pwKAoi5b3",
            class_map="1JF3Pjv9OboMNYs2aXRQGbJbc4t_nDd5u",
            role="1nJIKd77lcAGU4j-kVNx_AIGEkveIKz3A",
        ),
        _saint(
            "yelp",
            adj="1Juwx8HtDwSzmVIJ31ooVa1WljI4U5JnA",
            feats="1Zy6BZH_zLEjKlEFSduKE5tV9qqA_8VtM",
            class_map="1VUcBGr0T0-klqerjAjxRmAqFuld_SMWU",
            role="1NI5pa5Chpd-52eSmLW60OnB3WS5ikxq_",
        ),
        _ogb("ogbn-arxiv", "time"),
        _ogb("ogbn-products", "sales_ranking"),
    )
}
