//! Paths in one spelling, and the patterns that match them.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::path::{Malformed, NoPattern, Pattern, normalise};

use crate::made::{Random, rounds};

#[wasm_bindgen_test(unsupported = test)]
fn every_spelling_has_one_normal_form_or_none() {
    let table: &[(&[u8], Option<&str>)] = &[
        // As they are.
        (b"/", Some("/")),
        (b"/a", Some("/a")),
        (b"/a/", Some("/a/")),
        (b"/a/b", Some("/a/b")),
        (b"/A/b", Some("/A/b")),
        (b"/a.b-c_d~e", Some("/a.b-c_d~e")),
        (b"/0123456789", Some("/0123456789")),
        (b"/a:b@c!d$e&f'g(h)i*j+k,l;m=n", Some("/a:b@c!d$e&f'g(h)i*j+k,l;m=n")),
        // Query and fragment.
        (b"/a?b", Some("/a")),
        (b"/a?", Some("/a")),
        (b"/a#b", Some("/a")),
        (b"/a#b?c", Some("/a")),
        (b"/a?b#c", Some("/a")),
        (b"/?/../a", Some("/")),
        (b"/a?%zz", Some("/a")),
        (b"/a?b\0c", Some("/a")),
        (b"/a%3Fb", Some("/a%3Fb")),
        (b"/a%23b", Some("/a%23b")),
        // Dot segments.
        (b"/.", Some("/")),
        (b"/./", Some("/")),
        (b"/./a", Some("/a")),
        (b"/a/.", Some("/a/")),
        (b"/a/./", Some("/a/")),
        (b"/a/./b", Some("/a/b")),
        (b"/a/././b", Some("/a/b")),
        (b"/..", Some("/")),
        (b"/../", Some("/")),
        (b"/../a", Some("/a")),
        (b"/../../a", Some("/a")),
        (b"/a/..", Some("/")),
        (b"/a/../", Some("/")),
        (b"/a/../b", Some("/b")),
        (b"/a/b/..", Some("/a/")),
        (b"/a/b/../", Some("/a/")),
        (b"/a/b/../c", Some("/a/c")),
        (b"/a/b/../../c", Some("/c")),
        (b"/a/b/c/./../../g", Some("/a/g")),
        (b"/a/../../b", Some("/b")),
        (b"/...", Some("/...")),
        (b"/a/.../b", Some("/a/.../b")),
        (b"/a../b", Some("/a../b")),
        (b"/..a/b", Some("/..a/b")),
        (b"/.a", Some("/.a")),
        (b"/a.", Some("/a.")),
        (b"/..;/a", Some("/..;/a")),
        // Slashes in a row.
        (b"//", Some("/")),
        (b"///", Some("/")),
        (b"//a", Some("/a")),
        (b"/a//", Some("/a/")),
        (b"/a//b", Some("/a/b")),
        (b"/a////b//c", Some("/a/b/c")),
        (b"/a//./b", Some("/a/b")),
        (b"/a/.//b", Some("/a/b")),
        (b"/a//b/..", Some("/a/")),
        (b"/a//b/../c", Some("/a/c")),
        (b"/a/b/..//c", Some("/a/c")),
        // Servers that merge slashes first and those that do not read these as two paths.
        (b"/a//..", None),
        (b"/a//../b", None),
        (b"/a///../b", None),
        (b"//..", None),
        (b"//../a", None),
        (b"/a//./../b", None),
        (b"/a//././../b", None),
        (b"/a//b/../../c", None),
        (b"/a//b/c/../../../d", None),
        (b"/a//%2e%2E/b", None),
        (b"/a//%2e/../b", None),
        // Escapes.
        (b"/%61", Some("/a")),
        (b"/%41%5a%30%39", Some("/AZ09")),
        (b"/%2d%2E%5f%7e", Some("/-._~")),
        (b"/%2e", Some("/")),
        (b"/a/%2E%2e/b", Some("/b")),
        (b"/a/.%2e/b", Some("/b")),
        (b"/a/%2e/b", Some("/a/b")),
        (b"/a%2fb", Some("/a%2Fb")),
        (b"/a%2Fb", Some("/a%2Fb")),
        (b"/a%2f..%2fb", Some("/a%2F..%2Fb")),
        (b"/a/..%2fb", Some("/a/..%2Fb")),
        (b"/%2f%2f", Some("/%2F%2F")),
        (b"/a%5cb", Some("/a%5Cb")),
        (b"/a\\b", Some("/a%5Cb")),
        (b"/a\\..\\b", Some("/a%5C..%5Cb")),
        (b"/%25", Some("/%25")),
        (b"/%2561", Some("/%2561")),
        (b"/%252e%252e", Some("/%252e%252e")),
        (b"/%3b%3B%3d", Some("/%3B%3B%3D")),
        (b"/%2b", Some("/%2B")),
        (b"/%20", Some("/%20")),
        (b"/%0a%7F", Some("/%0A%7F")),
        (b"/\"<>[]^`{|}", Some("/%22%3C%3E%5B%5D%5E%60%7B%7C%7D")),
        ("/ä".as_bytes(), Some("/%C3%A4")),
        (b"/%c3%a4", Some("/%C3%A4")),
        (b"/\xff", Some("/%FF")),
        (b"/\x80%80", Some("/%80%80")),
        (b"/%", None),
        (b"/%4", None),
        (b"/%4?1", None),
        (b"/%g1", None),
        (b"/%1g", None),
        (b"/%%41", None),
        (b"/%u0041", None),
        (b"/%+1", None),
        (b"/% 1", None),
        (b"/%00", None),
        (b"/a%00b", None),
        // Control bytes and spaces.
        (b"/a b", None),
        (b"/ ", None),
        (b"/a\tb", None),
        (b"/a\r\nb", None),
        (b"/a\0b", None),
        (b"/\x7f", None),
        // The absolute form.
        (b"http://host/a", Some("/a")),
        (b"https://host:443/a/../b?c", Some("/b")),
        (b"HTTP://HOST/A", Some("/A")),
        (b"hTTpS://user@host/a//b", Some("/a/b")),
        (b"http://host", Some("/")),
        (b"http://host/", Some("/")),
        (b"http://host?a", Some("/")),
        (b"http://", Some("/")),
        (b"http:///a", Some("/a")),
        (b"http://host/http://other/b", Some("/http:/other/b")),
        (b"/http://host/a", Some("/http:/host/a")),
        (b"http:/a", None),
        (b"http:a", None),
        (b"ftp://host/a", None),
        (b"://host/a", None),
        (b"xhttp://host/a", None),
        (b" http://host/a", None),
        // Neither.
        (b"*", Some("*")),
        (b"*?a", Some("*")),
        (b"**", None),
        (b"*/a", None),
        (b"/*", Some("/*")),
        (b"", None),
        (b"?a", None),
        (b"#", None),
        (b"a", None),
        (b"a/b", None),
        (b".", None),
        (b"..", None),
        (b"../a", None),
        (b"host:443", None),
        (b"\\a", None),
        (b"%2fa", None),
        (b"\xff", None),
    ];
    for (sent, wanted) in table {
        let normal = normalise(sent);
        assert_eq!(normal.as_deref(), wanted.ok_or(&Malformed).map_err(|_| &Malformed), "{}", sent.escape_ascii());
        // The normal form of a normal form is itself.
        if let Ok(normal) = normal {
            assert_eq!(normalise(normal.as_bytes()), Ok(normal.clone()));
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_pattern_is_refused_for_what_is_wrong_with_it() {
    let not_normal = |text: &str| Err(NoPattern::NotNormal(text.to_owned()));
    let table = [
        ("/", Ok(())),
        ("/a", Ok(())),
        ("/a/", Ok(())),
        ("/a/b.c~d", Ok(())),
        ("/a%2Fb", Ok(())),
        ("/a;b=c", Ok(())),
        ("/**", Ok(())),
        ("/a/**", Ok(())),
        ("/{a}", Ok(())),
        ("/a/{id}/b/{id_2}/**", Ok(())),
        ("/{a}/", Ok(())),
        ("/%7Ba%7D", Ok(())),
        ("", Err(NoPattern::NoPath)),
        ("a", Err(NoPattern::NoPath)),
        ("**", Err(NoPattern::NoPath)),
        ("*", Err(NoPattern::NoPath)),
        ("{a}", Err(NoPattern::NoPath)),
        ("http://host/a", Err(NoPattern::NoPath)),
        (" /a", Err(NoPattern::NoPath)),
        ("/a b", Err(NoPattern::NoPath)),
        ("/a%", Err(NoPattern::NoPath)),
        ("/a%00", Err(NoPattern::NoPath)),
        ("/a//../b", Err(NoPattern::NoPath)),
        ("/a\n", Err(NoPattern::NoPath)),
        ("//", not_normal("/")),
        ("/a//b", not_normal("/a/b")),
        ("//**", not_normal("/**")),
        ("/a//**", not_normal("/a/**")),
        ("/a/./**", not_normal("/a/**")),
        ("/a/..", not_normal("/")),
        ("/a/../**", not_normal("/**")),
        ("/a/../b/{id}", not_normal("/b/{id}")),
        ("/a/{id}/../b", not_normal("/a/b")),
        ("/%61/{id}/**", not_normal("/a/{id}/**")),
        ("/a%2fb", not_normal("/a%2Fb")),
        ("/a?b", not_normal("/a")),
        ("/a#b", not_normal("/a")),
        ("/ä", not_normal("/%C3%A4")),
        ("/a|b", not_normal("/a%7Cb")),
        ("/*", Err(NoPattern::Star)),
        ("/a*", Err(NoPattern::Star)),
        ("/a/*/b", Err(NoPattern::Star)),
        ("/**/a", Err(NoPattern::Star)),
        ("/**/**", Err(NoPattern::Star)),
        ("/a/***", Err(NoPattern::Star)),
        ("/a**", Err(NoPattern::Star)),
        ("/**/", Err(NoPattern::Star)),
        ("/{}", Err(NoPattern::Braces)),
        ("/{a-b}", Err(NoPattern::Braces)),
        ("/{a}b", Err(NoPattern::Braces)),
        ("/a{b}", Err(NoPattern::Braces)),
        ("/{a", Err(NoPattern::Braces)),
        ("/a}", Err(NoPattern::Braces)),
        ("/{{a}}", Err(NoPattern::Braces)),
        ("/{*}", Err(NoPattern::Braces)),
        ("/{ä}", Err(NoPattern::Braces)),
    ];
    for (text, wanted) in table {
        assert_eq!(Pattern::parse(text).map(|_| ()), wanted, "{text}");
    }
    assert_eq!(Pattern::parse("/{a}"), Pattern::parse("/{b}"), "names of segments mean nothing yet");
}

#[wasm_bindgen_test(unsupported = test)]
fn a_pattern_matches_whole_segments() {
    let table: &[(&str, &[&str], &[&str])] = &[
        ("/", &["/"], &["", "*", "/a", "//"]),
        ("/a", &["/a"], &["/", "/a/", "/ab", "/A", "/a/b", "/a%2Fb", "a", "*"]),
        ("/a/", &["/a/"], &["/a", "/a/b", "/"]),
        ("/a/b", &["/a/b"], &["/a", "/a/b/", "/a/bc", "/a/b/c", "/ab"]),
        ("/**", &["/", "/a", "/a/", "/a/b/c"], &["*", "a"]),
        ("/v1/**", &["/v1", "/v1/", "/v1/a", "/v1/a/b/"], &["/", "/v", "/v10", "/v1a", "/v1%2Fa", "/x/v1", "*"]),
        ("/a/{id}", &["/a/b", "/a/%2F", "/a/{id}", "/a/.x"], &["/a", "/a/", "/a/b/", "/a/b/c"]),
        ("/{x}", &["/a", "/v1"], &["/", "/a/", "/a/b", "*"]),
        ("/{x}/", &["/a/"], &["/a", "/", "//"]),
        ("/a/{id}/**", &["/a/b", "/a/b/", "/a/b/c/d"], &["/a", "/a/"]),
        ("/a/{id}/b", &["/a/x/b"], &["/a/b", "/a//b", "/a/x/b/", "/a/x/y/b"]),
        ("/%7Bid%7D", &["/%7Bid%7D"], &["/a", "/{id}"]),
    ];
    for (text, matched, others) in table {
        let pattern = Pattern::parse(text).expect(text);
        for path in *matched {
            assert!(pattern.matches(path), "{text} is for {path}");
        }
        for path in *others {
            assert!(!pattern.matches(path), "{text} is not for {path}");
        }
    }
}

/// Spells a path in another way that means the same: escapes, dot segments, doubled slashes, the absolute form.
fn respelt(path: &str, random: &mut Random) -> Vec<u8> {
    let mut spelt = Vec::new();
    if random.one_in(8) {
        spelt.extend(random.pick(&["http://h", "https://h:8443", "HTTP://u@h"]).bytes());
    }
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    for segment in segments {
        spelt.push(b'/');
        for _ in 0..random.below(3) {
            let noise = ["", "./", "/", "x/../", "x/y/../../", "%2e/", "x/%2E./", ".//", "%7E/..//"];
            spelt.extend(random.pick(&noise).bytes());
        }
        for byte in segment.bytes() {
            match random.below(4) {
                0 => spelt.extend(format!("%{byte:02X}").bytes()),
                1 => spelt.extend(format!("%{byte:02x}").bytes()),
                _ => spelt.push(byte),
            }
        }
    }
    if random.one_in(3) {
        spelt.extend(random.pick(&["?", "?a=/../b", "#", "#/x", "?%", "#?"]).bytes());
    }
    spelt
}

#[wasm_bindgen_test(unsupported = test)]
fn no_spelling_of_a_path_reaches_another_class() {
    let patterns =
        ["/v1/reports/{id}/export", "/v1/admin", "/v1/admin/", "/v1/admin/**", "/v1/**", "/{x}/reports", "/"];
    let patterns = patterns.map(|text| Pattern::parse(text).expect(text));
    let class_of = |normal: &str| patterns.iter().position(|pattern| pattern.matches(normal));
    let paths =
        ["/v1/reports/7/export", "/v1/admin", "/v1/admin/", "/v1/admin/users", "/v1/a.b", "/v2/reports", "/", "/z"];
    let mut random = Random::seeded(1);
    let mut agreed = 0;
    for _ in 0..rounds(20_000) {
        let path = random.pick(&paths);
        let spelt = respelt(path, &mut random);
        match normalise(&spelt) {
            Ok(normal) => {
                assert_eq!(class_of(&normal), class_of(path), "{path} as {}", spelt.escape_ascii());
                assert_eq!(normal, path, "{}", spelt.escape_ascii());
                agreed += 1;
            }
            // Only where slashes in a row meet a dot segment, which servers read differently.
            Err(Malformed) => assert!(spelt.windows(2).any(|two| two == b"//"), "{}", spelt.escape_ascii()),
        }
    }
    assert!(agreed > rounds(20_000) / 2, "{agreed}");
}

/// Two ways in which servers read slashes in a row and dot segments: merge first, or remove dot segments first.
fn read_by_servers(path: &str) -> [String; 2] {
    fn merged(path: &str) -> String {
        let mut merged = String::new();
        for letter in path.chars() {
            if !(letter == '/' && merged.ends_with('/')) {
                merged.push(letter);
            }
        }
        merged
    }
    // RFC 3986, 5.2.4, as it stands there.
    fn without_dots(path: &str) -> String {
        let (mut input, mut output) = (path.to_owned(), String::new());
        while !input.is_empty() {
            let parent = input.starts_with("/../") || input == "/..";
            if parent || input.starts_with("/./") || input == "/." {
                let cut = if parent { 3 } else { 2 };
                input = format!("/{}", input.get(cut..).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default());
                if parent {
                    output.truncate(output.rfind('/').unwrap_or_default());
                }
            } else {
                let end = input.get(1..).and_then(|rest| rest.find('/')).map_or(input.len(), |slash| slash + 1);
                output.push_str(&input[..end]);
                input = input.split_off(end);
            }
        }
        output
    }
    [without_dots(&merged(path)), merged(&without_dots(path))]
}

#[wasm_bindgen_test(unsupported = test)]
fn a_path_that_servers_read_differently_is_malformed() {
    let mut random = Random::seeded(2);
    let (mut same, mut malformed) = (0, 0);
    for _ in 0..rounds(20_000) {
        let path = format!("/{}", random.joined(&["/", "/", "a", "b", ".", "..", "../", "./"], 9));
        let [first, second] = read_by_servers(&path);
        match normalise(path.as_bytes()) {
            Ok(normal) => {
                assert_eq!((&normal, &normal), (&first, &second), "{path}");
                same += 1;
            }
            Err(Malformed) => {
                assert!(path.contains("//"), "{path}");
                malformed += 1;
            }
        }
    }
    assert!(same > rounds(5_000) && malformed > rounds(1_000), "{same} {malformed}");
}
