#!/usr/bin/env bash
# tests/report.sh - makes a report of `feeds-replay sla`, opens it in headless Chromium, and asserts what is in the DOM: the
# verdict, the axes, the numbers; and that nothing stands wider than a phone. Not part of all.sh: it needs Chromium.
#
#   bash tests/report.sh [FOLDER]    FOLDER keeps the report and pictures of it: light, dark, and 390 px wide
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
[ $# -gt 0 ] || trap 'rm -rf "$folder"' EXIT
fail() { echo "report.sh: BROKEN: $*" >&2; exit 1; }
for tool in chromium jq; do
  command -v $tool >/dev/null || fail "'$tool' is missing; install it with: sudo apt-get install $tool"
done

cargo build --locked --quiet -p feeds-replay
cat >"$folder/sla.toml" <<'TOML'
name = "books <for> the desk"
[[case]]
name = "memory, in bursts"
transport = "shm"
limits = { p50 = "50us", p99 = "5ms", "p99.9" = "20ms" }
load = { shape = "squeezed", every = "200ms", width = "50ms", factor = 4 }
[[case]]
name = "UDP, slow strategy"
transport = "udp"
measure = "complete"
gaps_allowed = 100000
limits = { "p99" = "20us" }
load = { shape = "rate", messages_per_second = 2000 }
slow_subscriber = { work = "100us" }
TOML
code=0
timeout 120 target/debug/feeds-replay sla generated --seconds 4 --rate 2000 --sla "$folder/sla.toml" --out "$folder" >"$folder/report.txt" || code=$?
[ $code -le 2 ] || fail "sla ended with $code"
json=$folder/outcome.json

# A copy that measures itself: how wide things are is known to the browser alone. The report itself has no script.
! grep -q '<script' "$folder/report.html" || fail "the report has a script"
! grep -qE '(src|href)="(http|//)' "$folder/report.html" || fail "the report asks the network"
{
  sed 's#</body></html>##' "$folder/report.html"
  cat <<'HTML'
<script>
const widths = [...document.querySelectorAll("body *")].filter(e => !e.closest("svg")).map(e => e.getBoundingClientRect().right);
const boxes = [...document.querySelectorAll("svg")].map(svg => [...svg.querySelectorAll(".x-tick")].map(t => t.getBoundingClientRect()));
const touching = boxes.flatMap(row => row.slice(1).map((box, i) => row[i].right > box.left)).filter(Boolean).length;
const outside = [...document.querySelectorAll("svg text")].filter(t => {
  const [a, b] = [t.getBoundingClientRect(), t.closest("svg").getBoundingClientRect()];
  return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
}).length;
document.body.insertAdjacentHTML("beforeend", `<pre id="sized">${JSON.stringify({ width: innerWidth, widest: Math.ceil(Math.max(...widths)), touching, outside })}</pre>`);
</script></body></html>
HTML
} >"$folder/measured.html"
printf '<body style="margin:0"><iframe src="measured.html" style="width:390px;height:9000px;border:0"></iframe><script>
onload = () => document.body.insertAdjacentHTML("beforeend", "<pre id=\\"phone\\">" + frames[0].document.getElementById("sized").textContent + "</pre>");
</script></body>' >"$folder/phone.html"
browser() { timeout 60 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files "$@" 2>/dev/null; }
browser --window-size=1100,2000 --dump-dom "file://$folder/measured.html" >"$folder/dom.html"
browser --window-size=800,9100 --dump-dom "file://$folder/phone.html" >"$folder/phone-dom.html"

dom=$folder/dom.html
has() { grep -qF -- "$1" "$dom" || fail "the page does not show $1"; }
verdict=$(jq -r .verdict "$json")
has "<p id=\"verdict\" class=\"verdict ${verdict,,}\">$verdict</p>"
has 'books &lt;for&gt; the desk'
[ "$(grep -o 'data-verdict="[A-Z]*"' "$dom" | tr '\n' ' ')" = "$(jq -r '.cases[] | "data-verdict=\"\(.judgement.verdict)\""' "$json" | tr '\n' ' ')" ] || fail "a case's verdict"
# Numbers: each limit's, as the JSON has it, in the unit that suits it.
human() { awk -v n="$1" 'BEGIN { if (n < 1e3) printf "%d ns", n; else if (n < 1e6) printf "%.1f us", n / 1e3; else if (n < 1e9) printf "%.2f ms", n / 1e6; else printf "%.2f s", n / 1e9 }'; }
while read -r name value; do
  grep -oE "<tr data-percentile=\"$name\">.{0,400}" "$dom" | grep -qF "<b>$(human "$value")</b>" || fail "the measured $name of $(human "$value")"
done < <(jq -r '.cases[].evidence.limits[] | "p\(.limit.percentile) \(.measured.value_ns)"' "$json")
while read -r value; do has "$(human "$value")"; done < <(jq -r '.cases[] | .distributions[] | .p50_ns, .p999_ns, .max_ns' "$json")
for reason in 'rules of validity held' 'How it was taken' "$(jq -r .disclosure.kernel "$json")" "$(jq -r .disclosure.clock "$json")"; do has "$reason"; done
while read -r name; do has "$name"; done < <(jq -r '.cases[0].stages.names[]' "$json")
# Axes: nines across, decades upwards, seconds and records of the load.
for label in '>0 %<' '>90 %<' '>99 %<' '>99.9 %<' '>percentile<' '>seconds from the start<'; do has "$label"; done
[ "$(grep -o 'class="y-tick"' "$dom" | wc -l)" -ge 12 ] || fail "axes without ticks"
[ "$(grep -o '<polyline' "$dom" | wc -l)" = "$(jq '[.cases[].distributions | length | [., 4] | min] | add' "$json")" ] || fail "a curve is missing"
[ "$(grep -o 'class="limit" d=' "$dom" | wc -l)" = "$(jq '[.cases[].evidence.limits | length] | add' "$json")" ] || fail "a limit is missing from a plot"

for page in "$dom:sized" "$folder/phone-dom.html:phone"; do
  sized=$(grep -o "<pre id=\"${page##*:}\">[^<]*" "${page%:*}" | tail -n 1 | sed 's/^[^>]*>//') || fail "the browser measured nothing"
  jq -e '.widest <= .width and .touching == 0 and .outside == 0' <<<"$sized" >/dev/null || fail "wider than its window, or labels that touch or stand outside: $sized"
  echo "  │ ${page##*:}: $sized"
done
browser --window-size=1100,2800 --screenshot="$folder/light.png" "file://$folder/report.html" >/dev/null
browser --window-size=1100,2800 --blink-settings=preferredColorScheme=0 --screenshot="$folder/dark.png" "file://$folder/report.html" >/dev/null
browser --window-size=500,5000 --screenshot="$folder/phone.png" "file://$folder/phone.html" >/dev/null
cmp -s "$folder/light.png" "$folder/dark.png" && fail "light and dark look the same"
echo "report.sh: the page says $verdict, as outcome.json does; axes, numbers and widths are right"
