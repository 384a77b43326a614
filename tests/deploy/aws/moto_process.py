# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""moto's server, whose CloudFormation makes these resources but forgets them when a stack is deleted. Each is
removed as moto's own EC2 does it, with its checks: what something still uses is refused and tried again.
usage: moto_process.py OPTION... (moto_server's)"""

import sys

from moto.ec2.models import ec2_backends
from moto.ec2.models.internet_gateways import InternetGateway
from moto.ec2.models.route_tables import RouteTable
from moto.ec2.models.subnets import SubnetRouteTableAssociation
from moto.ec2.models.vpn_gateway import VPCGatewayAttachment
from moto.server import main


def delete_association(self, account, region):
    backend = ec2_backends[account][region]
    if self.route_table_id not in backend.route_tables:
        return
    for association, subnet in list(backend.route_tables[self.route_table_id]._associations.items()):
        if subnet == self.subnet_id:
            backend.disassociate_route_table(association)


def delete_table(self, account, region):
    ec2_backends[account][region].delete_route_table(self.id)


def delete_attachment(self, account, region):
    gateway, = (gateway for gateway in ec2_backends[account][region].internet_gateways.values()
                if gateway.vpc is not None and gateway.vpc.id == self.vpc_id)
    ec2_backends[account][region].detach_internet_gateway(gateway.id, self.vpc_id)


def delete_gateway(self, account, region):
    ec2_backends[account][region].delete_internet_gateway(self.id)


SubnetRouteTableAssociation.delete = delete_association
RouteTable.delete = delete_table
VPCGatewayAttachment.delete = delete_attachment
InternetGateway.delete = delete_gateway

if __name__ == "__main__":
    main(sys.argv[1:])
