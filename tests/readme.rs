//! What the README and the pages of docs say is so: their policies are valid, their messages are the ones that are given,
//! their commands work, their links lead somewhere.
#![cfg(not(target_arch = "wasm32"))]

mod pages;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use pages::{all_blocks, blocks, page, pages, prose};
use weir::policy::{Limit, Policy, Tree};
use weir::tenant::{HashKey, Storage, Tenant};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Lines of the front page: a stranger decides in two minutes.
const MOST_LINES: usize = 200;

fn decode(yaml: &str) -> Result<Policy, Vec<String>> {
    let tree: Tree = serde_saphyr::from_str(yaml).expect("YAML");
    let environment = |name: &str| name.starts_with("WEIR_").then(|| "a value".to_owned());
    let people = |problems: Vec<weir::policy::Problem>| {
        problems.iter().map(|problem| problem.for_people().to_string()).collect()
    };
    Policy::from_tree(&tree, &environment).map_err(people)
}

#[test]
fn the_front_page_is_short() {
    let lines = page("README.md").lines().count();
    assert!(lines <= MOST_LINES, "{lines} lines; what is not for a stranger belongs into docs/");
}

#[test]
fn every_policy_of_a_page_is_valid() {
    let policies = all_blocks("yaml");
    assert!(policies.len() >= 5, "{}", policies.len());
    for (path, yaml) in policies {
        decode(&yaml).unwrap_or_else(|problems| panic!("{path}: {problems:#?}\n{yaml}"));
    }
}

#[test]
fn the_guides_defaults_are_the_ones_it_names() {
    let shown = blocks(&page("docs/policy.md"), "yaml");
    assert_eq!(blocks(&page("README.md"), "yaml"), &shown[..1], "the smallest policy of the front page");
    let policies: Vec<Policy> = shown.iter().map(|yaml| decode(yaml).unwrap()).collect();
    let [smallest, whole, _words, limiters] = policies.as_slice() else {
        panic!("four policies, found {}", policies.len());
    };
    // Where the long one says "default", it says what the short one gets.
    assert_eq!(whole.response, smallest.response);
    assert_eq!(whole.namespace, smallest.namespace);
    assert_eq!(whole.limiters.first().timeout, smallest.limiters.first().timeout);
    assert_eq!(whole.limiters.first().breaker, smallest.limiters.first().breaker);
    assert_eq!(whole.table_entries, smallest.table_entries);
    assert_eq!(whole.limiters.first().authority, smallest.limiters.first().authority);
    assert_eq!(whole.rules[0].missing, smallest.rules[0].missing);
    assert_eq!(whole.rules[0].mode, smallest.rules[0].mode);
    assert_eq!(whole.rules[0].shadow, smallest.rules[0].shadow);
    let minute = weir::clock::Ms(60_000);
    assert_eq!(
        smallest.rules[0].tiers[0].entries[0].limits().collect::<Vec<_>>(),
        [Limit::new(100, minute, 100).unwrap()]
    );
    let limiter_of = |user: &str, tier| {
        let tenant = Tenant::new("user", user.as_bytes(), Storage::Plain, &HashKey::default());
        &limiters.limiters.get(limiters.rules[0].routing.limiter_of(&tenant, tier)).name
    };
    assert_eq!([limiter_of("alice", 0), limiter_of("acme", 1), limiter_of("whale", 0)], ["main", "big", "own"]);
}

#[test]
fn the_demo_shows_the_policy_that_the_examples_hold() {
    let demo = include_str!("../examples/policy.yaml");
    decode(demo).unwrap();
}

#[test]
fn the_policy_of_the_patterns_is_valid() {
    let patterns = decode(include_str!("../examples/patterns.yaml")).unwrap();
    assert!(patterns.response.x_ratelimit && patterns.response.ratelimit);
}

#[test]
fn the_guides_error_is_the_one_that_people_get() {
    let guide = page("docs/policy.md");
    let said = guide.split('`').find(|text| text.contains("\"10/x\" is no limit")).expect("an example of an error");
    let whole = blocks(&guide, "yaml").remove(1).replace("read: unlimited", "read: 10/x");
    assert_eq!(decode(&whole).unwrap_err(), [said]);
}

#[test]
fn the_guides_openssl_line_prints_a_tenant_as_the_module_does() {
    let lines = blocks(&page("docs/policy.md"), "sh");
    let line = lines.into_iter().find(|block| block.contains("openssl")).expect("the openssl line");
    let shell = Command::new("sh")
        .args(["-c", &line])
        .env("API_KEY", "key 7/ä")
        .env("WEIR_HASH_SECRET", "hush")
        .output()
        .expect("a shell");
    let tenant = Tenant::new("key", "key 7/ä".as_bytes(), Storage::Secret, &HashKey::new("hush"));
    assert_eq!(String::from_utf8_lossy(&shell.stdout), format!("{}\n", tenant.as_str()));
}

#[test]
fn the_guides_normal_form_is_the_one_that_is_compared() {
    assert!(page("docs/policy.md").contains("`/v1//a/../%72eports` is `/v1/reports`"));
    assert_eq!(weir::path::normalise(b"/v1//a/../%72eports").as_deref(), Ok("/v1/reports"));
}

#[test]
fn make_run_shows_what_it_says() {
    let shown = blocks(&page("README.md"), "");
    let expected = shown.into_iter().find(|block| block.contains("tenant       tier")).expect("the demo's table");
    let demo = Command::new("make")
        .args(["run", "ONCE=1"])
        .current_dir(ROOT)
        // It is a new make, not a part of the one that may run these tests.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .output()
        .expect("make");
    let shown = String::from_utf8_lossy(&demo.stdout);
    assert!(demo.status.success(), "{shown}\n{}", String::from_utf8_lossy(&demo.stderr));
    for line in expected.lines() {
        assert!(shown.lines().any(|other| other == line), "no line {line:?} in\n{shown}");
    }
}

#[test]
fn the_pages_of_the_examples_show_what_stands_in_their_files() {
    let examples = Path::new(ROOT).join("examples");
    let readme = page("README.md");
    let shown: Vec<&str> = readme.split("](examples/").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let shown: Vec<&str> = shown.into_iter().filter_map(|file| file.strip_suffix(".md")).collect();
    assert_eq!(shown, ["api-keys", "per-ip", "login", "exports", "quotas", "grpc", "jwt"]);
    let lines = |text: &str| -> Vec<String> { text.lines().map(|line| line.trim().to_owned()).collect() };
    for page in shown {
        let text = fs::read_to_string(examples.join(format!("{page}.md"))).expect("a page");
        let files = links(&text).into_iter().filter(|link| !link.contains("://") && !link.contains('#'));
        let read = |file: &String| fs::read_to_string(examples.join(file));
        let files: Vec<Vec<String>> = files.map(|file| lines(&read(&file).expect("a file"))).collect();
        let shown = blocks(&text, "yaml");
        assert!(!shown.is_empty(), "{page}");
        for block in shown {
            let block = lines(&block);
            let stands = files.iter().any(|file| file.windows(block.len()).any(|window| window == block));
            assert!(stands, "{page}: in none of its files: {block:#?}");
        }
    }
}

/// What a text has make do, at the start of a line or of a piece of code.
fn targets(text: &str) -> Vec<String> {
    let lines = text.lines().flat_map(|line| line.split('`'));
    let made = lines.filter_map(|line| line.trim_start().strip_prefix("make "));
    let words = made.flat_map(|rest| rest.split(" # ").next().unwrap_or_default().split_whitespace());
    let is_target = |word: &&str| word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-');
    words.filter(is_target).map(str::to_owned).collect()
}

#[test]
fn make_has_the_targets_that_pages_name() {
    let help = Command::new("make").arg("help").current_dir(ROOT).output().expect("make");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let known: BTreeSet<&str> = help.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let mut named = BTreeSet::new();
    for (path, text) in pages() {
        let shell = blocks(&text, "sh").concat();
        // In prose a target stands in a piece of code.
        let code: Vec<String> = prose(&text).split('`').skip(1).step_by(2).map(str::to_owned).collect();
        for target in targets(&shell).into_iter().chain(targets(&code.join("\n"))) {
            assert!(known.contains(target.as_str()), "{path}: make {target} is not in\n{help}");
            named.insert(target);
        }
    }
    assert!(
        ["run", "test", "module", "tool", "help", "bench"].iter().all(|target| named.contains(*target)),
        "{named:?}"
    );
}

/// What a page links to, in the order of the page; blocks hold no links.
fn links(page: &str) -> Vec<String> {
    let prose = prose(page);
    prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(page).lines().filter(|line| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim();
        let letters = heading.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        let anchor: String = letters.collect::<String>().to_lowercase().replace(' ', "-");
        let number = (0..).map(|n| if n == 0 { anchor.clone() } else { format!("{anchor}-{n}") });
        let free = number.into_iter().find(|anchor| !anchors.contains(anchor)).expect("a free one");
        anchors.insert(free);
    }
    anchors
}

/// A path without `..`, from the root.
fn tidy(path: &Path) -> Option<PathBuf> {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if !tidy.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            part => tidy.push(part),
        }
    }
    Some(tidy)
}

/// Where a link of a page leads to nothing.
fn broken(path: &str, text: &str) -> Vec<String> {
    let is_broken = |link: &String| {
        if link.contains("://") {
            return false;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let to = Path::new(path).parent().expect("a folder").join(file);
        let to = if file.is_empty() { Some(PathBuf::from(path)) } else { tidy(&to) };
        let Some(to) = to.filter(|to| Path::new(ROOT).join(to).exists()) else {
            return true;
        };
        !anchor.is_empty() && !anchors(&page(&to.display().to_string())).contains(anchor)
    };
    links(text).into_iter().filter(is_broken).map(|link| format!("{path}: {link}")).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let examples = fs::read_dir(Path::new(ROOT).join("examples")).expect("examples");
    let examples = examples.map(|entry| format!("examples/{}", entry.expect("an entry").file_name().to_string_lossy()));
    let more = examples.filter(|path| path.ends_with(".md")).chain(["CHANGELOG.md".to_owned()]);
    let all = pages().into_iter().chain(more.map(|path| (path.clone(), page(&path))));
    let broken: Vec<String> = all.flat_map(|(path, text)| broken(&path, &text)).collect();
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let text = "# A page: `on_error`\n[a](#a-page-on_error) [b](#b) [c](policy.md#limits) [d](policy.md#no) [e](no.md)\n\
                ```\n[f](no.md)\n```\n[g](../README.md) [h](../../README.md) [i](https://example.com/no)\n";
    let own = anchors(text);
    assert_eq!(own.into_iter().collect::<Vec<_>>(), ["a-page-on_error"]);
    let found = broken("docs/leases.md", text);
    let wanted = ["#a-page-on_error", "#b", "policy.md#no", "no.md", "../../README.md"];
    assert_eq!(found, wanted.map(|link| format!("docs/leases.md: {link}")));
}

#[test]
fn every_page_can_be_reached_from_the_front_page() {
    let linked = links(&page("README.md"));
    for (path, text) in pages().into_iter().skip(1) {
        assert!(linked.contains(&path), "{path}");
        assert!(text.starts_with("# "), "{path} begins with its title");
    }
}

/// Every file in these folders that is a text.
fn texts(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let is_skipped = |path: &PathBuf| ["target", "corpus", "artifacts"].iter().any(|name| path.ends_with(name));
    let texts = entries.filter(|path| !is_skipped(path)).flat_map(|path| match path.is_dir() {
        true => texts(&path),
        false => fs::read_to_string(&path).map(|text| (path, text)).into_iter().collect(),
    });
    texts.collect()
}

#[test]
fn other_files_name_pages_that_are_there() {
    let mut named = 0;
    for folder in ["src", "tests", "examples", "envoy", "lua"] {
        for (path, text) in texts(&Path::new(ROOT).join(folder)) {
            for rest in text.split("docs/").skip(1) {
                let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
                let name: &str = rest.split(|letter| !is_name(letter)).next().unwrap_or_default();
                let Some((name, _)) = name.split_once(".md") else {
                    continue;
                };
                named += 1;
                let page = format!("docs/{name}.md");
                assert!(Path::new(ROOT).join(&page).is_file(), "{}: {page}", path.display());
            }
        }
    }
    assert!(named >= 8, "{named}");
}

#[test]
fn the_page_of_the_architecture_has_every_room_in_order() {
    let lib = include_str!("../src/lib.rs");
    let list = lib.split("//! rooms: ").nth(1).and_then(|rest| rest.split("//!\n").next()).expect("a list of rooms");
    let rooms: Vec<String> = list.replace("//!", "").split(',').map(|room| format!("`{}`", room.trim())).collect();
    let page = page("docs/architecture.md");
    let table = page.split("## The rooms").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("a table");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let named: Vec<String> =
        rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(|room| format!("`{room}`")).collect();
    assert_eq!(named, rooms);
}

#[test]
fn the_page_of_operations_tells_of_every_alert() {
    let operations = page("docs/operations.md");
    let alerts = include_str!("../examples/alerts.yaml");
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(names.len(), 10);
    for name in names {
        assert!(operations.contains(&format!("\n| `{name}` | ")), "{name}");
    }
}
