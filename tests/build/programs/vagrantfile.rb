# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# vagrantfile.rb FOLDER PROVIDER: what Vagrant makes of FOLDER/Vagrantfile, as JSON: one object
# for each machine.  The provider need not be usable here.
require "json"
require "vagrant"

folder, provider = ARGV[0], ARGV[1].to_sym
environment = Vagrant::Environment.new(cwd: folder, ui_class: Vagrant::UI::Silent)

machines = environment.machine_names.map do |name|
  config = environment.vagrantfile.machine_config(name, provider, nil, nil, false)[:config]
  machine = config.vm
  settings = machine.get_provider_config(provider)
  {
    name: name, box: machine.box, hostname: machine.hostname,
    networks: machine.networks.filter_map { |kind, options| options if kind == :private_network },
    folders: machine.synced_folders,
    provisioners: machine.provisioners.map do |p|
      { name: p.name, type: p.type, inline: p.config.inline, reboot: p.config.reboot }
    end,
    provider: %i[driver cpus memory machine_type nic_model_type default_nic_type customizations]
      .select { |key| settings.respond_to?(key) }.to_h { |key| [key, settings.public_send(key)] },
  }
end

puts JSON.generate(machines)
