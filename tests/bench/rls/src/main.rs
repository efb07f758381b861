//! Envoy's rate limit service on the published limitador: what the native global filter asks.
//!
//! `rls memory` or `rls redis://USER:PASSWORD@HOST:PORT` prints the port of 127.0.0.1 that it has found, and ends when its
//! standard input does, so that it never outlives the bench. One limit for each `tenant` of a descriptor: in the domain
//! `bench` none that a bench reaches, in the domain `check` 10 a day. The rest is limitador's own way: its asynchronous
//! storage in Redis, tokio with a thread for each core.

use std::collections::HashMap;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use limitador::limit::{Context, Limit};
use limitador::storage::redis::AsyncRedisStorage;
use limitador::{AsyncRateLimiter, RateLimiter};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// How many tenants are kept in memory.
const COUNTERS: u64 = 1_000_000;

enum Limiter {
    Memory(RateLimiter),
    Redis(AsyncRateLimiter),
}

#[tonic::async_trait]
impl RateLimitService for Limiter {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let RateLimitRequest { domain, descriptors, hits_addend } = request.into_inner();
        let entries = descriptors.into_iter().flat_map(|descriptor| descriptor.entries);
        let values: HashMap<String, String> = entries.map(|entry| (entry.key, entry.value)).collect();
        let (domain, cost) = (domain.into(), u64::from(hits_addend.max(1)));
        let context = Context::from(values);
        let checked = match self {
            Limiter::Memory(limiter) => limiter.check_rate_limited_and_update(&domain, &context, cost),
            Limiter::Redis(limiter) => limiter.check_rate_limited_and_update(&domain, &context, cost).await,
        };
        let limited = checked.map_err(|e| Status::unavailable(e.to_string()))?.limited;
        let overall_code = if limited { Code::OverLimit } else { Code::Ok } as i32;
        Ok(Response::new(RateLimitResponse { overall_code, ..RateLimitResponse::default() }))
    }
}

fn limits() -> Result<[Limit; 2], Box<dyn std::error::Error>> {
    let limit = |domain: &str, most, seconds| -> Result<Limit, Box<dyn std::error::Error>> {
        Ok(Limit::new(domain, most, seconds, [], ["tenant".try_into()?]))
    };
    Ok([limit("bench", 1_000_000_000, 60)?, limit("check", 10, 86_400)?])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let storage = std::env::args().nth(1).ok_or("say where to count: memory, or the URL of a Redis")?;
    let limiter = match storage.as_str() {
        "memory" => {
            let limiter = RateLimiter::new(COUNTERS);
            for limit in limits()? {
                limiter.add_limit(limit);
            }
            Limiter::Memory(limiter)
        }
        url => {
            let limiter = AsyncRateLimiter::new_with_storage(Box::new(AsyncRedisStorage::new(url).await?));
            for limit in limits()? {
                limiter.add_limit(limit);
            }
            Limiter::Redis(limiter)
        }
    };
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?.port());
    let ended = async {
        let _ = tokio::io::stdin().read(&mut [0]).await;
    };
    tonic::transport::Server::builder()
        .add_service(RateLimitServiceServer::new(limiter))
        .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(true)), ended)
        .await?;
    Ok(())
}
