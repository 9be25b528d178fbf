//! `sabul card`: runs every test on one congestion controller and reports the results on one page.

use sabul_emu::isolate;
use sabul_study::Observer;
use sabul_study::card::{self, Card, Carrier, Contract, Draw, Order, Request, Sitting};

use crate::args::{Arm, CardArgs, CardTransport, ContractOrder};
use crate::error::CliError;
use crate::exit::{self, FAILED};
use crate::output;
use crate::stop::{Stop, isolated};

/// Runs `sabul card`. For the lab the process must have a single thread until this call.
pub(crate) fn run(args: &CardArgs) -> Result<u8, CliError> {
    if isolate::is_inside() {
        isolate::init_inside()?;
    }
    let sitting = Sitting::new(request(args))?;
    match args.arm {
        Arm::Sim => {
            let observer = Observer::silent();
            let observer = match args.output.quiet {
                true => observer,
                false => observer.with_notes(|line| output::note(line)),
            };
            show(args, &sitting.run(&observer)?)
        }
        Arm::Lab => isolated(|| {
            output::warn_of_debug_build();
            let observer = Stop::listen()?.observer(args.output.quiet);
            show(args, &sitting.run(&observer)?)
        }),
    }
}

fn request(args: &CardArgs) -> Request {
    let seeds = if args.draw.is_some() { card::SEEDS } else { 1 };
    Request {
        cc: args.cc.clone(),
        params: args.cc_params.clone(),
        arm: args.arm.into(),
        transport: args.transport.map(|transport| match transport {
            CardTransport::Sabul => Carrier::Sabul,
            CardTransport::Tcp => Carrier::Tcp,
        }),
        only: args.only.clone(),
        seconds_per_flow: args.seconds_per_flow,
        seeds: args.seeds.unwrap_or(seeds),
        settings: args.set.clone(),
        threads: args.threads,
        out: args.output.out.clone(),
        contract: args.contract.then_some(Contract {
            order: match args.order {
                ContractOrder::CubicFirst => Order::CubicFirst,
                ContractOrder::Together => Order::Together,
                ContractOrder::CubicLast => Order::CubicLast,
            },
            is_quick: args.quick,
        }),
        draw: args.draw.map(|paths| Draw { paths, seed: args.draw_seed.unwrap_or_default() }),
    }
}

/// Prints the card and returns the exit code.
fn show(args: &CardArgs, card: &Card) -> Result<u8, CliError> {
    if args.output.json {
        output::print_line(card.to_json()?)?;
        card.invalid().for_each(output::error);
    } else {
        output::print(card.text())?;
    }
    if let (false, Some(dir)) = (args.output.json || args.output.quiet, &args.output.out) {
        output::note(format_args!("wrote {}", dir.join("report.html").display()));
    }
    Ok(if card.is_valid() { exit::DONE } else { FAILED })
}
