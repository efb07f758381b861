//! `examples/jwt.md`.

use weir_stack::Request;

use super::{listener, shell, start_with, told};

#[test]
fn the_subject_and_the_plan_of_a_jwt_are_tenant_and_tier() {
    let mut page = start_with(&listener("jwt"), "jwt");
    let token = |arguments: &str| shell("jwt.md", "token()", &format!("token {arguments}"));
    let with = |token: &str| Request::get("/").header("authorization", format!("Bearer {token}"));
    let client = page.from(2);
    let joe = with(&token("joe gold"));
    client.passes(&joe, 20);
    client.is_limited(&joe, "per-user", 180);
    // A new token of the same subject is the same tenant, at any address.
    page.from(3).is_limited(&with(&token("joe gold")), "per-user", 180);
    // A plan that the policy does not know is the default tier; a subject that it names has its own.
    assert_eq!(told(&client.send(&with(&token("ann platinum")))), (200, Some("5"), Some("4")));
    assert_eq!(told(&client.send(&with(&token("ann free")))), (200, Some("5"), Some("3")));
    assert_eq!(told(&client.send(&with(&token("acme free")))), (200, Some("20"), Some("19")));
    client.is_refused(&with(&token("mallory gold")), 403, r#"{"error":"forbidden","rule":"per-user"}"#);
    client.is_refused(&with(&token("'' gold")), 403, r#"{"error":"forbidden","rule":"per-user"}"#);
    // What Envoy refuses never reaches weir.
    let keys = page.keys();
    let good = token("eve free");
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let promoted = format!("{}.{signature}", token("eve gold").rsplit_once('.').unwrap().0);
    let unsigned = format!("{signed}.");
    for bad in [promoted.as_str(), &unsigned, "", "a.b.c", &good[..good.len() - 4]] {
        assert_eq!(client.send(&with(bad)).status, 401, "{bad}");
    }
    assert_eq!(client.send(&Request::get("/").header("x-user", "eve")).status, 401);
    assert_eq!(page.keys(), keys);
    let wanted = ["acme", "ann", "joe"].map(|user| format!("rl:{{user.{user}}}:per-user:default:3600000:t3"));
    assert_eq!(keys, wanted);
    // What the page warns of: weir before jwt_authn reads nothing.
    let whole = listener("jwt");
    let parts: Vec<&str> = whole.split("\n                - name: ").collect();
    let [head, jwt_authn, weir, router] = parts[..] else { panic!("three filters: {whole}") };
    let swapped = [head, weir, jwt_authn, router].join("\n                - name: ");
    page.rig.envoys[0].push_listeners(&swapped).unwrap();
    page.from(2).is_refused(&with(&good), 403, r#"{"error":"forbidden","rule":"per-user"}"#);
    page.rig.assert_no_errors_logged();
}
