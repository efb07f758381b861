//! Spellings of the same resources: none reaches a looser limit than the plain spelling.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::policy::Policy;
use weir::rules::{Ruling, judge};

use crate::made::{Sent, policy_of};

/// Everything is tighter than `default`, so that a spelling that slips through would gain.
fn policy(paths: &str) -> Policy {
    let classes = r#", "classes": [
        {"class": "admin", "match": {"path": "/admin/**"}},
        {"class": "login", "match": {"methods": ["POST"], "path": "/login"}},
        {"class": "report", "match": {"path": "/v1/reports/{id}/export"}},
        {"class": "open", "match": {"path": "/open/**"}}]"#;
    let limits =
        r#"{"default": {"default": "1000/m", "admin": "1/m", "login": "2/m", "report": "3/m", "open": "unlimited"}}"#;
    policy_of(r#"[{"constant": "all"}]"#, limits, "", &format!("{classes}, \"paths\": {paths}"))
}

/// How much a minute passes, 0 where it is refused.
fn rate(policy: &Policy, path: &[u8]) -> u64 {
    match judge(policy, &Sent::new(&[(":method", b"POST"), (":path", path)])).ruling {
        Ruling::Ask(asks) => asks.iter().map(|ask| ask.limit.requests()).min().unwrap_or(u64::MAX),
        Ruling::Pass => u64::MAX,
        _ => 0,
    }
}

/// What every server takes for the resource, whatever else it folds.
const EVERYWHERE: &[(&str, &[&str])] = &[
    (
        "/admin/users",
        &[
            // Escapes of what needs none.
            "/%61dmin/users",
            "/%61%64%6d%69%6e/users",
            "/%61%64%6D%69%6E/users",
            "/admi%6e/users",
            "/admi%6E/users",
            "/admin/%75sers",
            "/admin/u%73ers",
            "/admin/user%73",
            "/admin/%75%73%65%72%73",
            "/a%64min/us%65rs",
            // Dot segments.
            "/./admin/users",
            "/admin/./users",
            "/././admin/././users",
            "/admin/x/../users",
            "/x/../admin/users",
            "/../admin/users",
            "/../../../admin/users",
            "/x/y/../../admin/users",
            "/admin/x/y/../../users",
            "/admin/../admin/users",
            "/open/../admin/users",
            "/open/./../admin/users",
            "/open/x/../../admin/users",
            "/%2e/admin/users",
            "/%2E/admin/users",
            "/admin/%2e/users",
            "/admin/%2E/users",
            "/%2e%2e/admin/users",
            "/%2E%2E/admin/users",
            "/.%2e/admin/users",
            "/%2e./admin/users",
            "/.%2E/admin/users",
            "/%2E./admin/users",
            "/open/%2e%2e/admin/users",
            "/open/.%2e/admin/users",
            "/open/%2E./admin/users",
            "/open/%2e%2E/admin/users",
            "/admin/x/%2e%2e/users",
            "/admin/%78/../users",
            "/x/%2e%2e/%61dmin/users",
            // Slashes in a row.
            "//admin/users",
            "///admin/users",
            "/admin//users",
            "/admin///users",
            "//admin//users",
            "////admin////users",
            "/.//admin/users",
            "//./admin/users",
            "/admin/.//users",
            "/admin//./users",
            "/admin//%2e//users",
            "/x/..//admin/users",
            "/open/..//admin/users",
            "//open/../admin/users",
            "/admin//x/../users",
            // Query and fragment.
            "/admin/users?",
            "/admin/users?x",
            "/admin/users?x=/open/",
            "/admin/users?/../../open/x",
            "/admin/users?%",
            "/admin/users??",
            "/admin/users?a#b",
            "/admin/users#",
            "/admin/users#/open/x",
            "/admin/users#?x",
            "/admin/users?a=b&c=d",
            "/admin/users?%2e%2e",
            "/admin//users?x",
            "/%61dmin/users?x",
            "/./admin/users#x",
            // The absolute form.
            "http://h/admin/users",
            "https://h/admin/users",
            "HTTP://H/admin/users",
            "hTTpS://h:8443/admin/users",
            "http://u:p@h/admin/users",
            "http://h//admin/users",
            "http://h/./admin/users",
            "http://h/%61dmin/users",
            "http://h/open/../admin/users",
            "http://h/admin/users?x",
            "http://h/../admin/users",
            "http://[::1]/admin/users",
            "http:///admin/users",
            "http://open/admin/users",
            "https://h/admin//users#x",
            // Below the class anything is in it.
            "/admin",
            "/admin/",
            "/admin/users/",
            "/admin/users/7",
            "/admin/%2F",
            "/admin/..%2f",
            "/admin/..%2F..%2F",
            "/admin/;x",
            "/admin/users;x=y",
            "/admin/%",
            "/admin/%zz",
            "/admin/%00",
            "/admin/\t",
            "/admin/%c0%af",
            "/admin/..;/",
            "/admin/USERS",
            "/admin/%5c",
            "/admin/\\",
            "/admin/%252e%252e/",
        ],
    ),
    (
        "/login",
        &[
            "/%6cogin",
            "/%6Cogin",
            "/l%6fgin",
            "/l%6Fgin",
            "/lo%67in",
            "/log%69n",
            "/logi%6e",
            "/logi%6E",
            "/%6c%6f%67%69%6e",
            "/%6C%6F%67%69%6E",
            "/./login",
            "/../login",
            "/x/../login",
            "/login/../login",
            "/open/../login",
            "/open/x/../../login",
            "/%2e/login",
            "/%2e%2e/login",
            "/.%2e/login",
            "/%2E./login",
            "//login",
            "///login",
            "//./login",
            "/.//login",
            "/x/..//login",
            "/login?",
            "/login?x",
            "/login?x=y#z",
            "/login#",
            "/login#x",
            "/login?/",
            "/login?/open",
            "/login?..",
            "/login?%",
            "/login?;",
            "/login?//",
            "http://h/login",
            "https://h/login",
            "HTTPS://H/login",
            "http://h//login",
            "http://h/x/../login",
            "http://h/%6cogin",
            "http://u@h/login",
            "http://h:80/login?x",
            "/x/y/../../login",
            "/x/./../login",
            "/a/b/c/../../../login",
            "/open/%2e%2e/%6cogin",
            "/open/.%2E//login",
            "//open/..//login",
        ],
    ),
    (
        "/v1/reports/7/export",
        &[
            "/v1/reports/8/export",
            "/v1/reports/%37/export",
            "/%761/reports/7/export",
            "/v%31/reports/7/export",
            "/v1/%72eports/7/export",
            "/v1/reports/7/%65xport",
            "/v1/reports/7/expor%74",
            "/v1//reports/7/export",
            "/v1/reports//7/export",
            "/v1/reports/7//export",
            "//v1//reports//7//export",
            "/./v1/./reports/./7/./export",
            "/v1/reports/x/../7/export",
            "/v1/x/../reports/7/export",
            "/v2/../v1/reports/7/export",
            "/v1/reports/7/x/../export",
            "/v1/reports/7/../8/export",
            "/v1/reports/%2e/7/export",
            "/v1/reports/x/%2e%2e/7/export",
            "/open/../v1/reports/7/export",
            "/open/%2e./v1/reports/7/export",
            "/v1/reports/7/export?x",
            "/v1/reports/7/export#x",
            "/v1/reports/7/export?/open",
            "/v1/reports/%2F/export",
            "/v1/reports/..%2F/export",
            "/v1/reports/;/export",
            "/v1/reports/a;b=c/export",
            "/v1/reports/%20/export",
            "/v1/reports/\u{e9}/export",
            "/v1/reports/%C3%A9/export",
            "/v1/reports/.../export",
            "/v1/reports/~/export",
            "http://h/v1/reports/7/export",
            "http://h//v1/reports/7/export",
            "HTTP://h/v1/reports/7/export?x",
            "http://h/open/../v1/reports/7/export",
            "/v1/reports/..;/export",
            "/v1/reports/%2e%2e%2f/export",
            "/v1/reports/*/export",
            "/v1/reports/{id}/export",
            "/v1/reports/%00/export",
            "/v1/reports/%zz/export",
        ],
    ),
];

/// What only servers of a kind take for it, with the words of the policy that say so.
const SOMEWHERE: &[(&str, &str, &[&str])] = &[
    (
        r#"{"ignore_case": true}"#,
        "/admin/users",
        &[
            "/Admin/users",
            "/ADMIN/users",
            "/aDMIN/USERS",
            "/%41dmin/users",
            "/%41%44%4d%49%4e/users",
            "//ADMIN//users",
            "/./Admin/users",
            "/OPEN/../Admin/users",
            "/open/../ADMIN",
            "/Admin",
            "/Admin/",
            "/Admin?x",
            "http://h/ADMIN/x",
            "/x/../ADMIN/users",
            "/AdmiN/%75sers",
            "/aDmIn/uSeRs",
        ],
    ),
    (
        r#"{"ignore_case": true}"#,
        "/login",
        &["/Login", "/LOGIN", "/%4cogin", "/%4C%4F%47%49%4E", "/lOGIN?x", "//LOGIN", "/./Login", "/X/../LOGIN"],
    ),
    (
        r#"{"trailing_slash": "ignore"}"#,
        "/login",
        &[
            "/login/",
            "/login//",
            "/login///",
            "/login/.",
            "/login/./",
            "/login/x/..",
            "/login/x/../",
            "/login/%2e",
            "/login/?x",
            "/login/#x",
            "//login//",
            "http://h/login/",
            "/login/./.",
            "/x/../login/",
            "/%6cogin/",
        ],
    ),
    (
        r#"{"trailing_slash": "ignore"}"#,
        "/v1/reports/7/export",
        &["/v1/reports/7/export/", "/v1/reports/7/export/.", "/v1/reports/7/export//", "/v1/reports/7/export/x/.."],
    ),
    (
        r#"{"strip_path_parameters": true}"#,
        "/admin/users",
        &[
            "/admin;/users",
            "/admin;x/users",
            "/admin;x=y/users",
            "/admin;x=y;z/users",
            "/;/admin/users",
            "/;x/admin/users",
            "/admin;%2F/users",
            "/admin;..%2f/users",
            "/open/..;/admin/users",
            "/open/..;x=y/admin/users",
            "/open/%2e%2e;/admin/users",
            "/open/.;/../admin/users",
            "/open;/../admin/users",
            "/open;x/..;y/admin;z/users",
            "/admin;?x",
            "/admin;",
            "/admin;x#y",
            "http://h/admin;x/users",
            "/%61dmin;x/users",
            "/.;/admin/users",
            "/..;/admin/users",
            "/x/..;/..;/admin/users",
        ],
    ),
    (
        r#"{"strip_path_parameters": true}"#,
        "/login",
        &[
            "/login;",
            "/login;x",
            "/login;x=y",
            "/login;jsessionid=1?x",
            "/login;;",
            "/open/..;/login",
            "/;/login",
            "/%6cogin;x",
        ],
    ),
    (
        r#"{"ignore_case": true, "trailing_slash": "ignore", "strip_path_parameters": true}"#,
        "/login",
        &["/LOGIN;x/", "/Login/;x", "/OPEN/..;/LoGiN/.", "/x;y/..;z/LOGIN;a/;b", "//Login;//", "/%4cOGIN;/."],
    ),
];

/// What no two servers agree on: refused, or, where the policy says so, in class `default`.
const MALFORMED: &[&[u8]] = &[
    b"/admin/%",
    b"/admin/%4",
    b"/%zz/admin",
    b"/admin%",
    b"/admin%0",
    b"/admin/%u0041",
    b"/admin%00",
    b"/%00/admin",
    b"/admin\0",
    b"/admin ",
    b"/ad min",
    b"/admin\t",
    b"/admin\r\n",
    b"/admin\x7f",
    b"admin",
    b"admin/users",
    b"",
    b"/open//../admin",
    b"/open//..//admin",
    b"/open/x//../../admin",
    b"/open///../admin",
    b"/open//./../admin",
    b"/open//%2e%2e/admin",
    b"//../admin",
    b"ftp://h/admin",
    b"://h/admin",
    b"http:/admin",
    b"\\admin",
    b"%2fadmin",
    b"?/admin",
    b"#/admin",
    b"..",
    b".",
    b"../admin",
    b"/admin/%%36%31",
    b"/admin/% 61",
    b"/admin/%+61",
];

#[wasm_bindgen_test(unsupported = test)]
fn no_spelling_reaches_a_looser_limit() {
    let mut count = 0;
    let everywhere = EVERYWHERE.iter().map(|(plain, spellings)| (r#"{"malformed": 400}"#, *plain, *spellings));
    for (paths, plain, spellings) in everywhere.chain(SOMEWHERE.iter().copied()) {
        let policy = policy(paths);
        let allowed = rate(&policy, plain.as_bytes());
        assert!((1..=3).contains(&allowed), "{plain}");
        for spelling in spellings {
            let rate = rate(&policy, spelling.as_bytes());
            assert!(rate <= allowed, "{plain} as {spelling} under {paths}: {rate}");
            count += 1;
        }
    }
    let (refusing, passing) = (policy("{}"), policy(r#"{"malformed": "default"}"#));
    for spelling in MALFORMED {
        // An empty path is CONNECT's: it is none, and it is in `default`.
        let wanted = if spelling.is_empty() { 1000 } else { 0 };
        assert_eq!(rate(&refusing, spelling), wanted, "{}", spelling.escape_ascii());
        assert_eq!(rate(&passing, spelling), 1000, "{}", spelling.escape_ascii());
        count += 1;
    }
    assert!(count >= 300, "{count}");
}

/// What is another resource to a server that keeps to RFC 3986: the words of `paths` are there for the others, and a
/// spelling that escapes a class is in `default`, never in a class that is open.
#[wasm_bindgen_test(unsupported = test)]
fn what_escapes_a_class_is_in_default() {
    let strict = policy("{}");
    let others = [
        "/Admin/users",
        "/admin%2Fusers",
        "/admin%2fusers",
        "/admin;x/users",
        "/..;/admin/users",
        "/open%2f..%2fadmin",
        "/%2561dmin/users",
        "/%252e%252e/admin",
        "/admin%5cusers",
        "/admin\\users",
        "/login/",
        "/login;x",
        "/LOGIN",
        "/%c1%a1dmin",
        "/%c0%ae%c0%ae/admin",
        "/login%20",
        "/login%0a",
        "/login.",
        "/login%3fx",
        "/login%23",
        "/v1/reports/export",
        "/v1/reports/7/export/",
        "/v1/reports/7/8/export",
        "/v1/reports/7%2Fexport",
        "/\u{ff0f}admin",
        "/ａdmin/users",
        "/%ef%bc%8fadmin",
        "/loginx",
        "/adminx",
        "/xadmin",
        "*",
    ];
    for path in others {
        assert_eq!(rate(&strict, path.as_bytes()), 1000, "{path}");
    }
}
