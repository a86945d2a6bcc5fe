//! A message queue: every message goes to one worker at a time, until it is done or out of attempts.
//!
//! Run `cargo run -p leasehold --example delivery -- send TEXT…`, `… work` (a text that starts with `bad` fails), `… dead` or
//! `… redrive ID`. The environment variable LEASEHOLD_ADDR names the server. Kill a worker in the middle of a message: another one
//! receives it when the session has ended.

use std::time::Duration;

use leasehold::recipes::delivery::{MessageQueue, ReceivedMessage, SendOptions};
use leasehold::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let client = Client::new(&address)?;
    let queue = client.queue("examples/mail").visibility(Duration::from_secs(10));
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match &args[..] {
        ["send", texts @ ..] => {
            for text in texts {
                let options = SendOptions::new().max_attempts(3);
                println!("message {}", queue.send_with(text.as_bytes(), options).await?);
            }
        }
        ["work"] => loop {
            work(queue.recv().await?).await?;
        },
        ["dead"] => print_dead_letters(&queue).await?,
        ["redrive", id] => queue.redrive(id.parse()?).await?,
        _ => return Err("usage: delivery send TEXT… | work | dead | redrive ID".into()),
    }
    Ok(client.close().await?)
}

async fn work(message: ReceivedMessage) -> Result<(), Error> {
    let text = String::from_utf8_lossy(message.body()).into_owned();
    println!("message {}, attempt {}, receipt {}: {text}", message.id(), message.attempt(), message.receipt());
    // The message is extended for as long as this takes.
    let succeeded = message.run(async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        !text.starts_with("bad")
    });
    match succeeded.await {
        Ok(true) => {
            message.ack().await?;
            println!("done");
        }
        Ok(false) => {
            let dead = message.nack(Duration::from_secs(1)).await?;
            println!("{}", if dead { "failed too often: dead" } else { "failed; it is delivered again" });
        }
        Err(error) => println!("lost: {error}"),
    }
    Ok(())
}

async fn print_dead_letters(queue: &MessageQueue) -> Result<(), Error> {
    let mut after = 0;
    loop {
        let letters = queue.dead_letters(after).await?;
        let Some(last) = letters.last() else { return Ok(()) };
        after = last.id;
        for letter in &letters {
            println!("{}: {} after {} attempts", letter.id, String::from_utf8_lossy(&letter.body), letter.attempts);
        }
    }
}
