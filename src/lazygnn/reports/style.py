"""The style of a report: light and dark, legible on a phone, with contrast of at least 4.5 for text."""

STYLE = (
    """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #4d5661; --back: #ffffff; --card: #f5f7f9; --line: #cfd6dd;
  --accent: #0b61a4; --tint: 11, 97, 164; --c0: #0b61a4; --c1: #b34700; --c2: #00704f; --c3: #9c3f7a; --c4: #2f6f8f;
  --c5: #7a5c00; }
@media (prefers-color-scheme: dark) { :root { --text: #e8ebee; --soft: #aeb7c0; --back: #14181c; --card: #1e242a;
  --line: #3a434c; --accent: #6db7f2; --tint: 90, 165, 230; --c0: #6db7f2; --c1: #f29a5c; --c2: #4fc9a0; --c3: #e29bc6;
  --c4: #8ccbe6; --c5: #e0bd55; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 16px/1.55 system-ui, sans-serif;
  overflow-wrap: break-word; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.08rem; margin: 1.75rem 0 .5rem; }
h4 { font-size: 1rem; margin: 1.25rem 0 .4rem; }
p, ul.plain { margin: .4rem 0 .8rem; max-width: 46rem; }
ul.plain { padding-left: 1.2rem; }
.soft, figcaption, .legend { color: var(--soft); font-size: .92rem; }
a { color: var(--accent); }
dl.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem; margin: 1rem 0; }
dl.facts div { background: var(--card); border-radius: .5rem; padding: .6rem .8rem; }
dl.facts dt { color: var(--soft); font-size: .85rem; }
dl.facts dd { margin: 0; font-size: 1.2rem; font-weight: 600; }
.scroll { overflow-x: auto; margin: .6rem 0 1rem; }
.scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { padding: .28rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.long { overflow-wrap: anywhere; min-width: 8rem; }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom; }
tbody th { font-weight: 500; white-space: nowrap; }
table.matrix td { text-align: right; background: rgba(var(--tint), var(--share)); }
table.matrix td.zero { color: var(--soft); }
.meter { display: inline-block; width: 6rem; height: .6rem; background: var(--card); border-radius: .3rem;
  overflow: hidden; }
.meter span { display: block; height: 100%; background: var(--accent); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(17rem, 100%), 1fr)); gap: 1rem; }
figure { margin: .5rem 0; min-width: 0; max-width: 30rem; }
figure svg { width: 100%; height: auto; display: block; }
figcaption { padding-left: .3rem; }
svg text { fill: var(--soft); font: 13.5px system-ui, sans-serif; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .bar { fill: var(--accent); }
svg .ideal { stroke: var(--c1); stroke-width: 2; stroke-dasharray: 5 4; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0 .3rem; margin: .2rem 0; }
.key { display: inline-block; width: 1.2rem; height: 0; border-top: 3px solid; margin-right: .4rem;
  vertical-align: middle; }
"""
    + "".join(
        f"svg .line.c{n} {{ stroke: var(--c{n}); }} svg .dot.c{n} {{ fill: var(--c{n}); }} "
        f".key.c{n} {{ border-color: var(--c{n}); }}\n"
        for n in range(6)
    )
    + """
svg .line.c1, svg .line.c4 { stroke-dasharray: 7 4; } svg .line.c2, svg .line.c5 { stroke-dasharray: 2 3; }
.key.c1, .key.c4 { border-top-style: dashed; } .key.c2, .key.c5 { border-top-style: dotted; }
summary { cursor: pointer; color: var(--accent); }
@media print { .scroll { overflow: visible; } }
"""
)
