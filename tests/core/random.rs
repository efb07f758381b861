//! Random numbers.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::random::SplitMix64;

#[wasm_bindgen_test(unsupported = test)]
fn the_numbers_of_a_seed_are_those_of_the_paper() {
    let mut random = SplitMix64::new(1_234_567);
    let told = [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
        4_593_380_528_125_082_431,
        16_408_922_859_458_223_821,
    ];
    assert_eq!(told.map(|_| random.next_u64()), told);
}
